"""The attention of Hugging Face models: tiny random models against the same models in float64."""

import copy
import types

import pytest
import reference
import torch
from reference import relative_error

transformers = pytest.importorskip("transformers")

import imbrex_torch.transformers  # noqa: E402
from imbrex_torch import check  # noqa: E402
from transformers import masking_utils  # noqa: E402

imbrex_torch.transformers.register()
SIZES = dict(vocab_size=250, hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=64, initializer_range=0.15, pad_token_id=0, bos_token_id=1,
             eos_token_id=None)
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**SIZES),
    "qwen3": lambda: transformers.Qwen3Config(**SIZES),
    # A full layer and one with a window of 16 keys, softcap of scores and logits, another scale.
    "gemma2": lambda: transformers.Gemma2Config(**SIZES, sliding_window=16, attn_logit_softcapping=5.0,
                                                query_pre_attn_scalar=100),
}
# PyTorch's scaled_dot_product_attention has no softcap: transformers would ignore it.
PEERS = {"llama": "sdpa", "qwen3": "sdpa", "gemma2": "eager"}


def models_of(kind, device, *variants):
    """Copies of a random model, in evaluation mode, for pairs of (attention, dtype)."""
    torch.manual_seed(1)
    first = transformers.AutoModelForCausalLM.from_config(CONFIGS[kind]()).to(device)
    made = []
    for attention, dtype in variants:
        model = copy.deepcopy(first).to(dtype).eval()
        model.set_attn_implementation(attention)
        made.append(model)
    return made


def three_models(kind, device):
    """With our attention, with another, and exact."""
    return models_of(kind, device, ("imbrex", torch.bfloat16), (PEERS[kind], torch.bfloat16), ("eager", torch.float64))


def random_ids(device, batch=2, length=70):
    return torch.randint(2, 250, (batch, length), device=device)


def require_as_close(ours, peers, exact, factor=1.1):
    error, allowed = relative_error(ours, exact), factor * relative_error(peers, exact)
    assert error <= allowed, f"error {error:.3g}, {allowed:.3g} is allowed"


@pytest.fixture
def masks(monkeypatch):
    """Names of the kernels' masks of all calls."""
    names = []
    made = imbrex_torch.transformers._mask_arguments

    def noted(*arguments):
        result = made(*arguments)
        names.append(result[0])
        return result

    monkeypatch.setattr(imbrex_torch.transformers, "_mask_arguments", noted)
    return names


@pytest.mark.parametrize("kind", CONFIGS)
def test_logits(device, kind, masks):
    ids = random_ids(device)
    with torch.no_grad():
        require_as_close(*(model(ids).logits for model in three_models(kind, device)))
    assert masks == (["window_mask:ii", "causal_mask"] if kind == "gemma2" else ["causal_mask"] * 2)


@pytest.mark.parametrize("kind", CONFIGS)
def test_training_step(device, kind):
    if kind == "gemma2" and device.type == "cpu":
        pytest.skip("more kernels than are worth their compilation for a CPU")
    ids = random_ids(device)
    models = three_models(kind, device)
    for model in models:
        model.train()
        model(ids, labels=ids, use_cache=False).loss.backward()
    gradients = [torch.cat([p.grad.double().flatten() for p in model.parameters()]) for model in models]
    require_as_close(*gradients)


def padded(ids, lengths, side):
    """The first tokens of each row with padding on one side, and the mask."""
    mask = torch.zeros_like(ids)
    for row, length in enumerate(lengths):
        mask[row, -length:] = 1
    if side == "right":
        mask = mask.flip(1)
    tokens = torch.zeros_like(ids)
    tokens[mask.bool()] = torch.cat([row[:length] for row, length in zip(ids, lengths)])
    return tokens, mask


@pytest.mark.parametrize("kind, side", [("llama", "left"), ("llama", "right"), ("gemma2", "left")])
def test_padding(device, kind, side, masks):
    ours, peer, exact = three_models(kind, device)
    ids, lengths = random_ids(device, batch=3, length=40), (40, 23, 1)
    tokens, mask = padded(ids, lengths, side)
    with torch.no_grad():
        alone = torch.cat([exact(row[None, :length]).logits[0] for row, length in zip(ids, lengths)])
        require_as_close(*(model(tokens, attention_mask=mask).logits[mask.bool()] for model in (ours, peer)), alone)
    assert masks == ["key_range_mask:t"] * 2


@pytest.mark.parametrize("side", ["left", "right"])
def test_training_step_with_padding(device, side):
    ids, lengths = random_ids(device, batch=3, length=40), (40, 23, 2)
    tokens, mask = padded(ids, lengths, side)
    gradients = []
    ours, peer, exact = three_models("llama", device)
    for model in (ours, peer):
        logits = model(tokens, attention_mask=mask, use_cache=False).logits[mask.bool()]
        logits.float().square().sum().backward()
    for row, length in zip(ids, lengths):
        exact(row[None, :length], use_cache=False).logits.square().sum().backward()
    gradients = [torch.cat([p.grad.double().flatten() for p in model.parameters()]) for model in (ours, peer, exact)]
    require_as_close(*gradients)


def test_packed_sequences(device, masks):
    ours, peer, exact = three_models("llama", device)
    ids, lengths = random_ids(device, batch=1, length=60), (17, 40, 3)
    positions = torch.cat([torch.arange(length, device=device) for length in lengths])[None]
    with torch.no_grad():
        alone = torch.cat([exact(one).logits[0] for one in ids.split(lengths, dim=1)])
        require_as_close(*(m(ids, position_ids=positions, use_cache=False).logits[0] for m in (ours, peer)), alone)
        assert masks == ["key_range_mask:t"] * 2
        # With the lengths from DataCollatorWithFlattening
        ends = torch.tensor([0, 17, 57, 60], device=device)
        ends = dict(cu_seq_lens_q=ends, cu_seq_lens_k=ends, max_length_q=40, max_length_k=40)
        flattened = ours(ids, position_ids=positions, use_cache=False, **ends).logits[0]
        require_as_close(flattened, peer(ids, position_ids=positions, use_cache=False).logits[0], alone)
    assert len(masks) == 2


@pytest.mark.parametrize("kind, cache", [("llama", "dynamic"), ("llama", "static"), ("gemma2", "dynamic")])
@pytest.mark.parametrize("lengths", [(24, 24), (24, 9)])
def test_generation(device, kind, cache, lengths, masks):
    ours, peer, exact = three_models(kind, device)
    ids = random_ids(device, batch=2, length=24)
    tokens, mask = padded(ids, lengths, "left")
    generated = ours.generate(tokens, attention_mask=mask, max_new_tokens=12, do_sample=False, output_logits=True,
                              return_dict_in_generate=True, cache_implementation=cache, disable_compile=True)
    logits, new = torch.stack(generated.logits, 1), generated.sequences[:, 24:]
    assert torch.equal(new, logits.argmax(-1))
    with torch.no_grad():
        for row, length in enumerate(lengths):
            whole = torch.cat((ids[row, :length], new[row]))[None, :-1]
            correct, peers = (model(whole).logits[0, length - 1:] for model in (exact, peer))
            require_as_close(logits[row], peers, correct, factor=1.3)  # of 12 tokens only
    if cache == "dynamic" and lengths == (24, 24) and kind == "llama":
        assert set(masks) == {"causal_mask"}


def test_sinks_and_window(device):
    """As a GPT-OSS model calls it."""
    q, k, v = (torch.randn(2, heads, 70, 64, device=device).bfloat16().requires_grad_() for heads in (4, 2, 2))
    sinks = torch.randn(4, device=device).bfloat16().requires_grad_()
    module = types.SimpleNamespace(is_causal=True)
    out, _ = imbrex_torch.transformers.attention_forward(module, q, k, v, None, scaling=0.2, sliding_window=16,
                                                         s_aux=sinks)
    inputs = [one.detach().double().requires_grad_() for one in (q, k, v, sinks)]
    exact, _ = reference.attention(*(one.transpose(1, 2) for one in inputs[:3]), causal=True, window=(15, 0), scale=0.2,
                                   sinks=inputs[3])
    assert relative_error(out, exact) < 0.01
    d_out = torch.randn_like(out)
    expected = torch.autograd.grad(exact, inputs, d_out.double())
    for result, correct in zip(torch.autograd.grad(out, (q, k, v, sinks), d_out), expected):
        assert relative_error(result, correct) < 0.02


def test_gradient_checkpointing(device):
    ids = random_ids(device, batch=3, length=40)
    tokens, mask = padded(ids, (40, 23, 2), "left")
    kept, recomputed = models_of("llama", device, *[("imbrex", torch.bfloat16)] * 2)
    recomputed.gradient_checkpointing_enable()
    for model in (kept, recomputed):
        model.train()
        model(tokens, attention_mask=mask, labels=tokens.masked_fill(mask == 0, -100)).loss.backward()
    for one, other in zip(kept.parameters(), recomputed.parameters()):
        torch.testing.assert_close(one.grad, other.grad)


def test_compiled_model(device):
    model, = models_of("llama", device, ("imbrex", torch.bfloat16))
    compiled = torch.compile(model, backend="aot_eager")
    for length in (40, 50):
        ids = random_ids(device, length=length)
        torch.testing.assert_close(compiled(ids, use_cache=False).logits, model(ids, use_cache=False).logits)
    compiled(ids, labels=ids, use_cache=False).loss.backward()
    assert model.model.layers[0].self_attn.k_proj.weight.grad.abs().max() > 0


def test_autocast(device):
    model, exact = models_of("llama", device, ("imbrex", torch.float32), ("eager", torch.float64))
    ids = random_ids(device)
    with torch.no_grad():
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(ids).logits
        assert relative_error(logits, exact(ids).logits) < 0.05


def test_masks_of_the_user(device, masks):
    ids = random_ids(device, length=40)
    ours, peer, exact = three_models("llama", device)
    keep = torch.rand(2, 1, 40, 40, device=device) < 0.5
    keep |= torch.eye(40, dtype=torch.bool, device=device)
    additive = torch.where(keep, 0.0, torch.finfo(torch.bfloat16).min)
    with torch.no_grad():
        correct = exact(ids, attention_mask=additive.double()).logits
        require_as_close(ours(ids, attention_mask=keep).logits, peer(ids, attention_mask=keep).logits, correct)
        for same in (keep[:1].expand(2, 1, 40, 40), keep.expand(2, 4, 40, 40)):
            expected = ours(ids, attention_mask=same.contiguous()).logits
            assert torch.equal(ours(ids, attention_mask=same).logits, expected)
        assert set(masks) == {"dense_mask:tlll"}
        added = ours(ids, attention_mask=additive.bfloat16()).logits
        assert torch.equal(added, peer(ids, attention_mask=additive.bfloat16()).logits)
        gemma, = models_of("gemma2", device, ("imbrex", torch.bfloat16))
        with pytest.raises(ValueError, match="attention_mask.dtype: torch.bfloat16; must be torch.bool"):
            gemma(ids, attention_mask={"full_attention": additive.bfloat16(), "sliding_attention": additive.bfloat16()})


def dense(mask, batch, queries, keys):
    """A result of the mask function as booleans [batch, 1, query, key]."""
    if isinstance(mask, torch.Tensor) and mask.dtype == torch.bool:
        return mask.expand(batch, 1, queries, keys)
    key = torch.arange(keys)
    if mask is None:
        mask = imbrex_torch.transformers.Window(1 << 30, 0)
    if isinstance(mask, imbrex_torch.transformers.Window):
        own = torch.arange(queries)[:, None] + keys - queries
        seen = (key >= own - mask.left) & (key <= own + mask.right)
        return seen.expand(batch, 1, queries, keys)
    first, end = mask.long().unbind(-1)
    assert (first.diff() >= 0).all() and (end.diff() >= 0).all()
    return (key >= first[..., None]) & (key < end[..., None])


LEFT = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1], [1] * 12])
DOCUMENTS = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 2], [0] * 12])
CAUSAL, WINDOW = masking_utils.causal_mask_function, masking_utils.sliding_window_causal_mask_function(4)
PACKED, ONE_DOCUMENT = (masking_utils.and_masks(CAUSAL, masking_utils.packed_sequence_mask_function(documents))
                        for documents in (DOCUMENTS, 0 * DOCUMENTS))
PACKED_WINDOW = masking_utils.and_masks(WINDOW, masking_utils.packed_sequence_mask_function(DOCUMENTS))
BLOCKS = masking_utils.or_masks(CAUSAL, masking_utils.blockwise_overlay(DOCUMENTS))
AROUND = masking_utils.sliding_window_bidirectional_mask_function(3)
FULL = masking_utils.bidirectional_mask_function
# The mask function, the padding mask, the numbers of queries and keys, offsets of both, and what is made of it.
CASES = {
    "causal": (CAUSAL, None, 12, 12, 0, 0, type(None)),
    "causal, no padding": (CAUSAL, LEFT | 1, 12, 12, 0, 0, type(None)),
    "next tokens": (CAUSAL, None, 3, 12, 9, 0, type(None)),
    "left padding": (CAUSAL, LEFT, 12, 12, 0, 0, torch.int32),
    "right padding": (CAUSAL, LEFT.flip(1), 12, 12, 0, 0, torch.int32),
    "padding and next tokens": (CAUSAL, LEFT, 2, 12, 10, 0, torch.int32),
    "no key of a sequence": (CAUSAL, LEFT * torch.tensor([[0], [1]]), 12, 12, 0, 0, torch.int32),
    "holes": (CAUSAL, LEFT * (torch.arange(12) != 6), 12, 12, 0, 0, torch.bool),
    "window": (WINDOW, None, 12, 12, 0, 0, imbrex_torch.transformers.Window),
    "window, short": (WINDOW, None, 3, 3, 0, 0, type(None)),
    "window, padding": (WINDOW, LEFT, 12, 12, 0, 0, torch.int32),
    "window, cache of the last keys": (WINDOW, LEFT, 2, 5, 10, 7, imbrex_torch.transformers.Window),
    "window, padding in the cache": (WINDOW, LEFT[:, :7], 2, 5, 5, 2, torch.int32),
    "static cache": (CAUSAL, None, 5, 12, torch.tensor(0), 0, torch.int32),
    "static cache, padding": (CAUSAL, LEFT[:, :8], 5, 12, torch.tensor(3), 0, torch.int32),
    "packed": (PACKED, None, 12, 12, 0, 0, torch.int32),
    "packed, one document": (ONE_DOCUMENT, None, 12, 12, 0, 0, type(None)),
    "packed, window": (PACKED_WINDOW, None, 12, 12, 0, 0, torch.int32),
    "around": (AROUND, None, 12, 12, 0, 0, imbrex_torch.transformers.Window),
    "around, padding": (AROUND, LEFT, 12, 12, 0, 0, torch.int32),
    "full, padding": (FULL, LEFT, 12, 12, 0, 0, torch.int32),
    "prefix of the user": (masking_utils.or_masks(CAUSAL, lambda b, h, q, k: k < 5), None, 12, 12, 0, 0, torch.bool),
    "blocks": (BLOCKS, None, 12, 12, 0, 0, torch.bool),
}


@pytest.mark.parametrize("case", CASES)
def test_mask_function(case):
    function, padding, queries, keys, q_offset, kv_offset, kind = CASES[case]
    padding = None if padding is None else padding.bool()
    arguments = dict(batch_size=2, q_length=queries, kv_length=keys, q_offset=q_offset, kv_offset=kv_offset,
                     mask_function=function, attention_mask=padding)
    made = imbrex_torch.transformers.attention_mask(**arguments, allow_is_bidirectional_skip=True)
    assert (made.dtype if isinstance(made, torch.Tensor) else type(made)) == kind
    expected = masking_utils.sdpa_mask(**arguments, allow_is_causal_skip=False).expand(2, 1, queries, keys)
    assert torch.equal(dense(made, 2, queries, keys), expected)
    if "packed" not in case:  # a mask that the model asks for as a tensor
        made = imbrex_torch.transformers.attention_mask(**arguments, allow_is_causal_skip=False)
        assert made.dtype == torch.bool and torch.equal(dense(made, 2, queries, keys), expected)


def test_checker_is_silent(device):
    model, = models_of("llama", torch.device("cpu"), ("imbrex", torch.bfloat16))
    tokens, mask = padded(random_ids("cpu", length=20), (20, 9), "left")
    assert check(model, (tokens,), {"attention_mask": mask, "use_cache": False}, schedules=2) is None


def test_messages(device):
    ids = random_ids(device)
    model, = models_of("llama", device, ("imbrex", torch.bfloat16))
    model.train()
    model.model.layers[0].self_attn.attention_dropout = 0.1
    with pytest.raises(ValueError, match="dropout: 0.1; the attention of imbrex has none, set attention_dropout"):
        model(ids)
    with pytest.raises(TypeError, match="q.dtype: Float; must be BFloat16 or Half"):
        models_of("llama", device, ("imbrex", torch.float32))[0](ids)
