import functools
import math

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import imbrex_torch
import reference
from imbrex_torch.distributed import ring_attention, shard, ulysses_attention, unshard
from ranks import Ranks
from reference import relative_error


@pytest.fixture(scope="module", params=[(2, "gloo"), (4, "gloo"), (2, "nccl")], ids=lambda one: f"{one[1]}-{one[0]}")
def ranks(request):
    count, backend = request.param
    if backend == "nccl" and not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    ranks = Ranks(count, backend)
    yield ranks
    ranks.stop()


def whole_tensors(device, tokens=101, batch=2, heads=8, kv_heads=4, head_dim=64):
    """q, k, v and a gradient of out, the same on all ranks."""
    return [torch.randn(batch, tokens, count, head_dim).bfloat16().to(device)
            for count in (heads, kv_heads, kv_heads, heads)]


def require_close(value, exact, limit=0.01):
    if exact.norm() < 1e-9:
        assert value.double().norm() < 1e-6
    else:
        assert relative_error(value, exact) < limit


def compare_with_whole(device, attention, placement, options, tokens=101):
    """out, LSE and gradients of sharded sequences with those of whole ones in double."""
    q, k, v, out_gradient = whole_tensors(device, tokens)
    lse_gradient = torch.randn(q.shape[0], q.shape[2], tokens).to(device)
    sinks = [torch.randn(q.shape[2], device=device)] if options.get("sinks") else []
    inputs = [t.requires_grad_() for t in (*(shard(t, placement) for t in (q, k, v)), *sinks)]
    exact_inputs = [t.detach().double().requires_grad_() for t in (q, k, v, *sinks)]
    common = {name: value for name, value in options.items() if name in ("causal", "softcap", "scale", "window")}
    extra = {name: value for name, value in options.items() if name not in (*common, "sinks")}

    def ours(q, k, v, sinks=None):
        return attention(q, k, v, sinks=sinks, placement=placement, tokens=tokens, return_lse=True, **common, **extra)

    def exact(q, k, v, sinks=None):
        return reference.attention(q, k, v, sinks=sinks, **common)

    whole = functools.partial(unshard, placement=placement, tokens=tokens)
    out, lse = (t.detach() for t in ours(*inputs))
    exact_out, exact_lse = exact(*exact_inputs)
    require_close(whole(out), exact_out)
    assert (whole(lse, dim=2).double() - exact_lse).abs().max() < 1e-2
    gradients = reference.gradients(ours, inputs, shard(out_gradient, placement), shard(lse_gradient, placement, dim=2))
    exact_gradients = reference.gradients(exact, exact_inputs, out_gradient, lse_gradient)
    for one, exact_one in zip(gradients[:3], exact_gradients):
        require_close(whole(one), exact_one, 0.02)
    if sinks:
        d_sinks = gradients[3].clone()
        dist.all_reduce(d_sinks)
        require_close(d_sinks, exact_gradients[3], 0.02)


@pytest.mark.parametrize("placement", ["contiguous", "zigzag", "striped"])
@pytest.mark.parametrize("attention", [ring_attention, ulysses_attention], ids=lambda one: one.__name__)
def test_out_lse_and_gradients(ranks, attention, placement):
    ranks.run(compare_with_whole, attention, placement, {"causal": True})


OPTIONS = {
    "full": {},
    "window": {"causal": True, "window": (20, 0)},
    "scale, sinks": {"causal": True, "scale": 0.3, "sinks": True},
    "softcap": {"softcap": 5.0, "causal": True},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("attention", [ring_attention, ulysses_attention], ids=lambda one: one.__name__)
def test_options(ranks, attention, options):
    ranks.run(compare_with_whole, attention, "zigzag", OPTIONS[options])


def test_window_of_contiguous_tokens_whose_keys_stop_early(ranks):
    ranks.run(compare_with_whole, ring_attention, "contiguous", OPTIONS["window"])


def test_mesh(ranks):
    ranks.run(compare_with_whole, ring_attention, "zigzag", {"causal": True, "q_chunks": 2})


@pytest.mark.parametrize("attention", [ring_attention, ulysses_attention], ids=lambda one: one.__name__)
def test_fewer_tokens_than_ranks(ranks, attention):
    ranks.run(compare_with_whole, attention, "zigzag", {"causal": True}, 1)


def compare_with_one_rank(device, attention):
    q, k, v, out_gradient = whole_tensors(device, tokens=80)
    whole = [t.requires_grad_() for t in (q, k, v)]
    inputs = [shard(t.detach()).requires_grad_() for t in whole]
    out = attention(*inputs, causal=True, placement="zigzag")
    expected = imbrex_torch.attention(*whole, causal=True)
    require_close(unshard(out.detach()), expected.detach())
    gradients = torch.autograd.grad(out, inputs, shard(out_gradient))
    for one, other in zip(gradients, torch.autograd.grad(expected, whole, out_gradient)):
        require_close(unshard(one), other)


@pytest.mark.parametrize("attention", [ring_attention, ulysses_attention], ids=lambda one: one.__name__)
def test_matches_attention_on_one_rank(ranks, attention):
    ranks.run(compare_with_one_rank, attention)


def same_bits(device):
    q, k, v, _ = whole_tensors(device, tokens=300)
    inputs = [shard(t).requires_grad_() for t in (q, k, v)]

    def gradients():
        return torch.autograd.grad(ring_attention(*inputs, causal=True, deterministic=True).sum(), inputs)

    first = gradients()
    for _ in range(2):
        assert all(torch.equal(a, b) for a, b in zip(first, gradients()))


def test_deterministic_gradients_have_the_same_bits(ranks):
    ranks.run(same_bits)


def strided_and_empty(device):
    fused = torch.randn(2, 40, 16, 64).bfloat16().to(device)
    q, k, v = fused[:, :, :8], fused[:, :, 8:12], fused[:, :, 12:].transpose(0, 1).contiguous().transpose(0, 1)
    for attention in (ring_attention, ulysses_attention):
        expected = attention(q.contiguous(), k.contiguous(), v.contiguous())
        assert torch.equal(attention(q, k, v), expected)
        inputs = [t[:0].detach().requires_grad_() for t in (q, k, v)]
        out, lse = attention(*inputs, return_lse=True)
        assert out.shape == (0, 40, 8, 64) and lse.shape == (0, 8, 40)
        assert all(one.shape == t.shape for one, t in zip(torch.autograd.grad(out.sum(), inputs), inputs))


def test_strided_and_empty_inputs(ranks):
    ranks.run(strided_and_empty)


def in_groups(device):
    """Groups of one rank, and of the ranks of a mesh dimension."""
    count, rank = dist.get_world_size(), dist.get_rank()
    alone = [dist.new_group([one]) for one in range(count)][rank]
    q, k, v, _ = whole_tensors(device, tokens=60)
    expected, expected_lse = imbrex_torch.attention(q, k, v, causal=True, return_lse=True)
    for attention in (ring_attention, ulysses_attention):
        out, lse = attention(q, k, v, causal=True, group=alone, return_lse=True)
        require_close(out, expected)
        assert torch.allclose(lse, expected_lse, atol=1e-5)
        assert torch.equal(unshard(shard(q, group=alone), group=alone), q)
    mesh = init_device_mesh(device.type, (count // 2, 2), mesh_dim_names=("data", "context"))["context"]
    for attention in (ring_attention, ulysses_attention):
        own = [shard(t, group=mesh) for t in (q, k, v)]
        require_close(unshard(attention(*own, causal=True, placement="zigzag", group=mesh), group=mesh), expected)


def test_groups(ranks):
    ranks.run(in_groups)


def shard_and_unshard(device):
    count, rank = dist.get_world_size(), dist.get_rank()
    for placement, tokens in [(one, tokens) for one in ("contiguous", "zigzag", "striped") for tokens in (1, 16, 23)]:
        positions = shard(torch.arange(tokens, device=device), placement, dim=0)
        assert torch.equal(positions, positions.sort().values)
        whole = torch.randn(3, tokens, 2).to(device).requires_grad_()
        own = shard(whole, placement)
        assert torch.equal(own, whole[:, positions])
        again = unshard(own, placement, tokens=tokens)
        assert torch.equal(again, whole)
        again.backward(torch.ones_like(again))
        expected = torch.zeros_like(whole)
        expected[:, positions] = count
        assert torch.equal(whole.grad, expected)
    assert shard(torch.arange(16), "zigzag", dim=0).tolist() == {
        2: [[0, 1, 2, 3, 12, 13, 14, 15], [4, 5, 6, 7, 8, 9, 10, 11]],
        4: [[0, 1, 14, 15], [2, 3, 12, 13], [4, 5, 10, 11], [6, 7, 8, 9]]}[count][rank]


def test_shard_and_unshard(ranks):
    ranks.run(shard_and_unshard)


def message_of(kind, function, *args, **options):
    with pytest.raises(kind) as caught:
        function(*args, **options)
    return str(caught.value)


def errors(device):
    count, rank = dist.get_world_size(), dist.get_rank()
    q, k, v, _ = whole_tensors(device, tokens=12)
    message = message_of(RuntimeError, ring_attention, *(t[:, rank:] for t in (q, k, v)))
    assert f"tokens: {11 * count} on rank 1, and {12 * count} on rank 0" in message and "same on all ranks" in message
    message = message_of(RuntimeError, ulysses_attention, *(t[:, rank:] for t in (q, k, v)))
    assert f"tokens: {11 * count} on rank 1, and {12 * count} on rank 0" in message
    message = message_of(RuntimeError, ring_attention, *(t.half() if rank == 0 else t for t in (q, k, v)))
    assert "dtype (1: bf16, 2: fp16): 1 on rank 1, and 2 on rank 0" in message
    # One rank has a token too many: it says so, and the others name it.
    wrong = [torch.cat([t, t[:, :1]], 1) if rank == 0 else t for t in (q, k, v)]
    message = message_of(ValueError if rank == 0 else RuntimeError, ring_attention, *wrong, tokens=12 * count)
    assert (f"q: 13 tokens; rank 0 of {count} has 12 of {12 * count} tokens in zigzag placement" in message if rank == 0
            else "rank 0 has invalid arguments" in message)
    for attention in (ring_attention, ulysses_attention):
        message = message_of(ValueError, attention, q, k, v, placement="random")
        assert "placement: random; contiguous, zigzag and striped are allowed" in message
        assert "softcap: 0; a positive number is needed" in message_of(ValueError, attention, q, k, v, softcap=0)
    message = message_of(ValueError, ulysses_attention, q, k[:, :, :1], v[:, :, :1])
    assert f"k: 1 heads; at least {count} are needed, one per rank" in message
    message = message_of(ValueError, ring_attention, q, k, v, q_chunks=3)
    assert f"q_chunks: 3; must divide the {count} ranks" in message
    assert "q.dtype: Float; must be BFloat16 or Half" in message_of(TypeError, ring_attention, q.float(), k, v)
    assert "k.dtype: Half; must be BFloat16" in message_of(TypeError, ring_attention, q, k.half(), v)
    message = message_of(ValueError, ring_attention, q, k, v[:, 1:])
    assert "v: shape [2, 11, 4, 64]; the batch and tokens of q" in message
    message = message_of(ValueError, ring_attention, q[:, :, :5], k, v)
    assert "q: 5 heads; a multiple of the heads of k and v is needed" in message
    assert "tokens: -1; 0 to" in message_of(ValueError, ring_attention, q, k, v, tokens=-1)
    assert "sinks: shape [3]; 8 elements are needed" in message_of(ValueError, ring_attention, q, k, v,
                                                                   sinks=torch.zeros(3, device=device))
    # The group still works.
    out = unshard(ring_attention(*(shard(t) for t in (q, k, v))))
    require_close(out, reference.attention(*(t.double() for t in (q, k, v)))[0])


def test_errors(ranks):
    ranks.run(errors)


def compiled_step(device, backend, dynamic):
    def step(attention, q, k, v):
        return (attention(q * 2, k, v, causal=True, placement="zigzag") + 1).float().square().sum()

    for attention in (ring_attention, ulysses_attention):
        torch.compiler.reset()
        compiled = torch.compile(functools.partial(step, attention), fullgraph=True, backend=backend, dynamic=dynamic)
        for tokens in (80, 48):
            inputs = [shard(t).requires_grad_() for t in whole_tensors(device, tokens)[:3]]
            result, expected = compiled(*inputs), step(attention, *inputs)
            assert torch.allclose(result, expected, rtol=1e-3)
            for one, other in zip(torch.autograd.grad(result, inputs), torch.autograd.grad(expected, inputs)):
                require_close(one, other)


@pytest.mark.parametrize("backend, dynamic", [("inductor", False), ("aot_eager", True)], ids=["static", "dynamic"])
def test_compile_without_graph_breaks(ranks, backend, dynamic):
    if ranks.count > 2:
        pytest.skip("two ranks show it, and each compiles for a minute")
    ranks.run(compiled_step, backend, dynamic)


def on_a_side_stream(device):
    q, k, v, _ = whole_tensors(device, tokens=512)
    inputs = [shard(t).requires_grad_() for t in (q, k, v)]
    expected = ring_attention(*inputs, causal=True)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):  # memory is used again
            out = ring_attention(*inputs, causal=True)
            torch.autograd.grad(out.sum(), inputs)
    torch.cuda.current_stream().wait_stream(side)
    assert torch.equal(out, expected)


def test_streams(ranks):
    if ranks.backend != "nccl":
        pytest.skip("streams are CUDA's")
    ranks.run(on_a_side_stream)


def start_group_of_one(device):
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)


@pytest.fixture
def group_of_one(device):
    start_group_of_one(device)
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_opcheck(device, group_of_one):
    q, k, v, d_out = whole_tensors(device, tokens=40)
    more = (None, None, 40, 1 << 30, 0, "zigzag", 1, True, group_of_one.group_name)
    forward = torch.ops.imbrex.ring_attention_forward.default
    backward = torch.ops.imbrex.ring_attention_backward.default
    sinks = torch.randn(8, device=device)
    torch.library.opcheck(forward, (*(t.detach().requires_grad_() for t in (q, k, v, sinks)), *more))
    out, lse2 = forward(q, k, v, sinks, *more)
    delta = (out.float() * d_out).sum(-1).permute(2, 0, 1).contiguous()
    torch.library.opcheck(backward, (d_out, delta, q, k, v, lse2, sinks, *more))
    torch.library.opcheck(backward, (d_out, delta, q, k, v, lse2, None, *more))


def test_groups_of_the_same_name(device):
    """A plan belongs to its group, not to the group's name."""
    for _ in range(2):
        start_group_of_one(device)
        q, k, v, _ = whole_tensors(device, tokens=20)
        require_close(ring_attention(q, k, v), reference.attention(*(t.double() for t in (q, k, v)))[0])
        dist.destroy_process_group()


def test_without_a_group():
    q, k, v, _ = whole_tensors("cpu", tokens=8)
    for function, args in ((ring_attention, (q, k, v)), (ulysses_attention, (q, k, v)), (shard, (q,)), (unshard, (q,))):
        assert "group: None, and there is no default group" in message_of(ValueError, function, *args)


def test_check_is_refused(group_of_one):
    q, k, v, _ = whole_tensors("cpu", tokens=8)
    message = message_of(NotImplementedError, imbrex_torch.check, ring_attention, (q, k, v))
    assert "check: ring attention has several processes" in message
