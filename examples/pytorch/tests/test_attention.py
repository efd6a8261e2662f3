import functools
import math

import pytest
import torch

import imbrex_torch
import reference
from reference import relative_error


def random_qkv(device, batch=2, seqlen_q=70, seqlen_k=70, heads=4, kv_heads=2, head_dim=64, dtype=torch.bfloat16,
               requires_grad=False):
    def one(rows, count):
        return torch.randn(batch, rows, count, head_dim, device=device, dtype=dtype, requires_grad=requires_grad)

    return one(seqlen_q, heads), one(seqlen_k, kv_heads), one(seqlen_k, kv_heads)


def doubles(tensors):
    return [t.detach().double().requires_grad_() for t in tensors]


def require_close(value, exact, limit=0.01):
    assert relative_error(value, exact) < limit


CASES = {
    "full": {},
    "causal": {"causal": True},
    "more keys": {"causal": True, "seqlen_k": 100},
    "more queries": {"causal": True, "seqlen_q": 100},
    "window": {"causal": True, "window": 20},
    "softcap": {"softcap": 5.0},
    "scale": {"scale": 0.3},
}


@pytest.mark.parametrize("case", CASES)
def test_out_lse_and_gradients(device, case):
    options = dict(CASES[case])
    sizes = {name: options.pop(name) for name in ("seqlen_q", "seqlen_k") if name in options}
    inputs = random_qkv(device, requires_grad=True, **sizes)
    exact_options = dict(options)
    if "window" in options:
        exact_options["window"] = (options["window"], 0)
    exact = functools.partial(reference.attention, **exact_options)

    def ours(*qkv):
        return imbrex_torch.attention(*qkv, return_lse=True, **options)

    out, lse = ours(*inputs)
    exact_out, exact_lse = exact(*doubles(inputs))
    require_close(out, exact_out)
    seen = exact_lse > -math.inf
    assert torch.equal(lse > -math.inf, seen)
    assert (lse[seen].double() - exact_lse[seen]).abs().max() < 1e-2

    out_gradient, lse_gradient = torch.randn_like(out), torch.randn_like(lse)
    lse_gradient[~seen] = 0
    for ours_one, exact_one in zip(reference.gradients(ours, inputs, out_gradient, lse_gradient),
                                   reference.gradients(exact, doubles(inputs), out_gradient, lse_gradient)):
        require_close(ours_one, exact_one, 0.02)


def test_sinks_and_their_gradient(device):
    inputs = random_qkv(device, requires_grad=True)
    sinks = torch.randn(4, device=device, requires_grad=True)
    out_gradient = torch.randn_like(inputs[0])

    def ours(q, k, v, sinks):
        return imbrex_torch.attention(q, k, v, sinks=sinks, return_lse=True)

    def exact(q, k, v, sinks):
        return reference.attention(q, k, v, sinks=sinks)

    all_inputs = (*inputs, sinks)
    require_close(ours(*all_inputs)[0], exact(*doubles(all_inputs))[0])
    for one, exact_one in zip(reference.gradients(ours, all_inputs, out_gradient),
                              reference.gradients(exact, doubles(all_inputs), out_gradient)):
        require_close(one, exact_one, 0.02)


def test_deterministic_gradients_have_the_same_bits(device):
    inputs = random_qkv(device, seqlen_q=300, seqlen_k=300, requires_grad=True)

    def gradients():
        return torch.autograd.grad(imbrex_torch.attention(*inputs, causal=True, deterministic=True).sum(), inputs)

    first = gradients()
    for _ in range(3):
        assert all(torch.equal(a, b) for a, b in zip(first, gradients()))


def test_lengths_of_a_padded_batch(device):
    q, k, v = random_qkv(device)
    used = torch.tensor([70, 33], device=device, dtype=torch.int32)
    k.data[1, 33:], v.data[1, 33:] = math.nan, math.nan
    out = imbrex_torch.attention(q, k, v, seqused_k=used)
    require_close(out[:1], reference.attention(*(t[:1].double() for t in (q, k, v)))[0])
    require_close(out[1:], reference.attention(q[1:].double(), k[1:, :33].double(), v[1:, :33].double())[0])


def test_varlen(device):
    lengths = [40, 0, 57, 1]
    starts = torch.tensor([0, 40, 40, 97, 98], device=device, dtype=torch.int32)
    q, k, v = (t[0].detach().requires_grad_() for t in random_qkv(device, batch=1, seqlen_q=98, seqlen_k=98))
    out, lse = imbrex_torch.attention_varlen(q, k, v, starts, starts, causal=True, return_lse=True)
    assert lse.shape == (4, 98)
    gradient = torch.randn_like(out)
    ours = torch.autograd.grad((out * gradient).sum(), (q, k, v))
    first = 0
    for length in lengths:
        rows = slice(first, first + length)
        first += length
        if length == 0:
            continue
        parts = [t[rows].detach()[None].double().requires_grad_() for t in (q, k, v)]
        exact, exact_lse = reference.attention(*parts, causal=True)
        require_close(out[rows], exact[0])
        require_close(lse[:, rows], exact_lse[0])
        for one, exact_one in zip(ours, torch.autograd.grad((exact[0] * gradient[rows]).sum(), parts)):
            if exact_one.norm() > 1e-6:  # one key: the gradients of q and k are zero
                require_close(one[rows], exact_one[0], 0.02)


def test_strided_inputs(device):
    """Views of a fused projection, a transposed layout and a strided last dimension give the same as copies."""
    fused = torch.randn(2, 70, 8, 64, device=device, dtype=torch.bfloat16)
    q, k, v = fused[:, :, :4], fused[:, :, 4:6], fused[:, :, 6:]
    expected = imbrex_torch.attention(q.contiguous(), k.contiguous(), v.contiguous())
    assert torch.equal(imbrex_torch.attention(q, k, v), expected)
    heads_first = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v)]
    assert torch.equal(imbrex_torch.attention(*heads_first), expected)
    columns_strided = [t.transpose(2, 3).contiguous().transpose(2, 3) for t in (q, k, v)]
    assert torch.equal(imbrex_torch.attention(*columns_strided), expected)


def test_gradient_of_an_expanded_tensor(device):
    """The gradient of a sum arrives with strides of 0."""
    inputs = random_qkv(device, requires_grad=True)
    ours = torch.autograd.grad(imbrex_torch.attention(*inputs).sum(), inputs)
    ones = torch.ones(2, 70, 4, 64, device=device, dtype=torch.bfloat16)
    expected = torch.autograd.grad((imbrex_torch.attention(*inputs) * ones).sum(), inputs)
    for one, other in zip(ours[1:], expected[1:]):  # the order of dQ's sums varies
        assert torch.equal(one, other)


@pytest.mark.parametrize("sizes", [{"batch": 0}, {"seqlen_q": 0}, {"seqlen_k": 0}], ids=str)
def test_empty_inputs(device, sizes):
    inputs = random_qkv(device, requires_grad=True, **sizes)
    out, lse = imbrex_torch.attention(*inputs, return_lse=True)
    assert out.shape == inputs[0].shape and (out == 0).all() and (lse == -math.inf).all()
    for gradient, one in zip(torch.autograd.grad(out.sum(), inputs), inputs):
        assert gradient.shape == one.shape and (gradient == 0).all()


def test_errors(device):
    q, k, v = random_qkv(device)
    with pytest.raises(TypeError, match="q.dtype: Float; must be BFloat16 or Half"):
        imbrex_torch.attention(q.float(), k.float(), v.float())
    with pytest.raises(TypeError, match="k.dtype: Float; must be BFloat16, that of q"):
        imbrex_torch.attention(q, k.float(), v)
    with pytest.raises(ValueError, match=r"q: shape \[70, 4, 64\]; \[batch, sequence, heads, head_dim\] is needed"):
        imbrex_torch.attention(q[0], k[0], v[0])
    with pytest.raises(ValueError, match="k.extents.3.: 32; q has 64 columns"):
        imbrex_torch.attention(q, k[..., :32], v)
    with pytest.raises(ValueError, match="heads of q must be a multiple"):
        imbrex_torch.attention(q[:, :, :3], k, v)
    with pytest.raises(ValueError, match="scale: -1; a positive number is needed"):
        imbrex_torch.attention(q, k, v, scale=-1.0)
    with pytest.raises(ValueError, match="softcap: 0; a positive number is needed"):
        imbrex_torch.attention(q, k, v, softcap=0)
    with pytest.raises(ValueError, match="window: -2; sides are numbers of keys"):
        imbrex_torch.attention(q, k, v, window=-2)
    with pytest.raises(ValueError, match="sinks: shape .5.; 4 elements are needed"):
        imbrex_torch.attention(q, k, v, sinks=torch.zeros(5, device=device))
    with pytest.raises(ValueError, match="sinks.dtype: bf16; must be float"):
        imbrex_torch.attention(q, k, v, sinks=torch.zeros(4, device=device, dtype=torch.bfloat16))
    if device.type == "cuda":
        with pytest.raises(TypeError, match="sinks.device: cpu; must be cuda:0"):
            imbrex_torch.attention(q, k, v, sinks=torch.zeros(4))


def test_opcheck(device):
    q, k, v = random_qkv(device, requires_grad=True)
    starts = torch.tensor([0, 30, 70], device=device, dtype=torch.int32)
    options = ("causal_mask", [], [], "score_mod::identity", [], [], False)
    forward = torch.ops.imbrex.attention_forward.default
    torch.library.opcheck(forward, (q, k, v, None, None, None, None, None, *options))
    packed = [t[0].detach() for t in (q, k, v)]
    torch.library.opcheck(forward, (*packed, 0.5, None, starts, starts, None, *options))
    out, lse2 = forward(q, k, v, None, None, None, None, None, *options)
    backward = torch.ops.imbrex.attention_backward.default
    torch.library.opcheck(backward, (torch.randn_like(out), None, *(t.detach() for t in (q, k, v, out, lse2)), None, None,
                                     None, None, None, *options[:-1], True), atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_without_graph_breaks(device, dynamic):
    def step(q, k, v):
        return (imbrex_torch.attention(q * 2, k, v, causal=True) + 1).float().square().sum()

    compiled = torch.compile(step, fullgraph=True, dynamic=dynamic)
    for rows in (70, 50):
        inputs = random_qkv(device, seqlen_q=rows, seqlen_k=rows, requires_grad=True)
        result, expected = compiled(*inputs), step(*inputs)
        assert torch.allclose(result, expected, rtol=1e-3)
        for one, other in zip(torch.autograd.grad(result, inputs), torch.autograd.grad(expected, inputs)):
            require_close(one, other, 0.01)


def test_check_finds_no_hazard():
    inputs = random_qkv("cpu", batch=1, heads=1, kv_heads=1, requires_grad=True)
    options = {"causal": True}
    assert imbrex_torch.check(imbrex_torch.attention, inputs, options, schedules=10, backward=True) is None
    with pytest.raises(ValueError, match="schedules: 0; at least 1 is needed"):
        imbrex_torch.check(imbrex_torch.attention, inputs, options, schedules=0)


DOCUMENTS = """
struct mask : mask_base {
    const int* document;  // of each token
    IMBREX_FN bool keep(const attention_extents& s, int query, int key) const {
        return (query < s.seqlen_q) & (key < s.seqlen_k) && document[query] == document[key];
    }
};"""


def test_mask_in_cpp(device):
    documents = imbrex_torch.attention_with(mask_source=DOCUMENTS, members={"document": torch.int32})
    inputs = random_qkv(device, requires_grad=True)
    ids = (torch.arange(70, device=device) // 25).int()
    keep = ids[:, None] == ids[None, :]

    def ours(*qkv):
        return documents(*qkv, document=ids, return_lse=True)

    exact = functools.partial(reference.attention, keep=keep)
    gradient = torch.randn_like(inputs[0])
    require_close(ours(*inputs)[0], exact(*doubles(inputs))[0])
    for one, other in zip(reference.gradients(ours, inputs, gradient),
                          reference.gradients(exact, doubles(inputs), gradient)):
        require_close(one, other, 0.02)


BIAS = """
struct score {
    static constexpr bool reads_memory = true;
    const float* bias;  // of each distance
    float* d_bias;
    float factor;
    IMBREX_FN int distance(int query, int key) const { return query < key ? key - query : query - key; }
    IMBREX_KERNEL float operator()(const attention_extents& s, int query, int key, float score) const {
        const int at = (query < s.seqlen_q) & (key < s.seqlen_k) ? distance(query, key) : 0;
        return score + factor * bias[at];
    }
    IMBREX_KERNEL void add_gradient(const attention_extents&, int query, int key, float d_score) const {
        add_element(d_bias, distance(query, key), factor * d_score);
    }
};"""


def test_score_in_cpp_and_its_gradient(device):
    biased = imbrex_torch.attention_with(
        score_source=BIAS, members={"bias": torch.float32, "d_bias": torch.float32, "factor": float})
    inputs = random_qkv(device, requires_grad=True)
    bias = torch.randn(70, device=device, requires_grad=True)
    rows = torch.arange(70, device=device)
    distances = (rows[:, None] - rows[None, :]).abs()

    def ours(q, k, v, bias):
        return biased(q, k, v, bias=bias, factor=0.5, return_lse=True)

    def exact(q, k, v, bias):
        return reference.attention(q, k, v, bias=0.5 * bias[distances])

    gradient = torch.randn_like(inputs[0])
    all_inputs = (*inputs, bias)
    require_close(ours(*all_inputs)[0], exact(*doubles(all_inputs))[0])
    for one, other in zip(reference.gradients(ours, all_inputs, gradient),
                          reference.gradients(exact, doubles(all_inputs), gradient)):
        require_close(one, other, 0.02)


def test_errors_of_cpp_sources(device):
    q, k, v = random_qkv(device)
    with pytest.raises(ValueError, match="mask_source, score_source: None; at least one is needed"):
        imbrex_torch.attention_with()
    with pytest.raises(ValueError, match="must define struct mask"):
        imbrex_torch.attention_with(mask_source="struct other {};")
    incomplete = imbrex_torch.attention_with(mask_source="struct mask {};")
    with pytest.raises(RuntimeError, match="^imbrex: Mask must have key_range visible_keys"):
        incomplete(q, k, v)
    wrong = imbrex_torch.attention_with(mask_source="struct mask : mask_base { no_such_type x; };")
    with pytest.raises(RuntimeError, match="no_such_type"):
        wrong(q, k, v)
    documents = imbrex_torch.attention_with(mask_source=DOCUMENTS, members={"document": torch.int32})
    with pytest.raises(TypeError, match="document: not given; it is a member"):
        documents(q, k, v)
    with pytest.raises(TypeError, match="document: torch.int64; a tensor of torch.int32 is needed"):
        documents(q, k, v, document=torch.zeros(70, dtype=torch.int64, device=device))
    with pytest.raises(TypeError, match="documents: no member"):
        documents(q, k, v, document=torch.zeros(70, dtype=torch.int32, device=device), documents=1)
    too_few = imbrex_torch.attention_with(mask_source=DOCUMENTS)
    with pytest.raises(ValueError, match="mask: 0 bytes of members; the compiled type has 8"):
        too_few(q, k, v)


def test_streams_and_graphs(device):
    if device.type != "cuda":
        pytest.skip("streams and graphs are CUDA's")
    inputs = random_qkv(device, seqlen_q=512, seqlen_k=512, requires_grad=True)
    # detach: a graph that lives on would tie the gradients of the inputs to its stream.
    expected = imbrex_torch.attention(*inputs, causal=True).detach()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        out = imbrex_torch.attention(*inputs, causal=True)
        gradients = torch.autograd.grad(out.sum(), inputs)
        out = out.detach()
    torch.cuda.current_stream().wait_stream(side)
    assert torch.equal(out, expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = imbrex_torch.attention(*inputs, causal=True)
        captured_gradients = torch.autograd.grad(captured.sum(), inputs)
    captured.data.zero_()
    graph.replay()
    assert torch.equal(captured, expected)
    for one, other in zip(captured_gradients[1:], gradients[1:]):
        assert torch.equal(one, other)
