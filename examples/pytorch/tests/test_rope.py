"""rope against float64."""

import pytest
import torch
from comparison import assert_close, assert_follows_stream_and_graph, assert_rounded_once

from imbrex_torch import check, rope, rope_

DTYPES = [torch.bfloat16, torch.float16, torch.float32]


def some(device, *shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device=device).to(dtype)


def reference(x, positions, inv_freq, style="neox", factor=1.0):
    """positions expand to the dimensions of the tokens."""
    x = x.double()
    rotary = 2 * inv_freq.numel()
    angles = (positions.double()[..., None] * inv_freq.double())[..., None, :]
    cos, sin = factor * angles.cos(), factor * angles.sin()
    turned, rest = x[..., :rotary], x[..., rotary:]
    if style == "neox":
        a, b = turned.chunk(2, -1)
        turned = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
    else:
        a, b = turned[..., ::2], turned[..., 1::2]
        turned = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
    return torch.cat((turned, rest), -1)


def frequencies(rotary_dim, theta=10000.0, device=None):
    return theta ** (-torch.arange(0, rotary_dim, 2, dtype=torch.float64, device=device) / rotary_dim)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("style", ["neox", "gptj"])
def test_is_rounded_once(device, dtype, style):
    for head_dim, rotary_dim in [(64, 64), (128, 128), (80, 32), (20, 6), (16, 0)]:
        q, k = some(device, 2, 5, 3, head_dim, dtype=dtype), some(device, 2, 5, 1, head_dim, dtype=dtype)
        results = rope(q, k, rotary_dim=rotary_dim, style=style)
        for x, result in zip((q, k), results):
            positions = torch.arange(5, device=device).expand(2, 5)
            assert_rounded_once(result, reference(x, positions, frequencies(rotary_dim, device=device), style))


def test_positions(device):
    x, inv_freq = some(device, 2, 5, 3, 64), frequencies(64, device=device)
    each = torch.tensor([[0, 7, 100_000, 1_000_000, -3], [4, 3, 2, 1, 0]], device=device)
    for positions in (each, each.int(), each[:1], each[1]):
        assert_rounded_once(rope(x, positions=positions), reference(x, positions.expand(2, 5), inv_freq))
    assert torch.equal(rope(x, positions=7), rope(x, positions=torch.arange(7, 12, device=device)))
    assert torch.equal(rope(x[:1], positions=7), rope(x, positions=7)[:1])
    assert torch.equal(rope(x[0], positions=each[0]), rope(x, positions=each)[0])


def test_frequencies(device):
    x, positions = some(device, 1, 5, 3, 64), torch.arange(5, device=device)
    assert_rounded_once(rope(x, theta=500000), reference(x, positions, frequencies(64, 500000, device)))
    scaled = (frequencies(48, device=device) / 8).float()
    assert_rounded_once(rope(x, inv_freq=scaled, attention_factor=1.25), reference(x, positions, scaled, factor=1.25))


def test_strides_do_not_matter(device):
    heads_first = some(device, 2, 3, 5, 64).transpose(1, 2)
    for x in (heads_first, heads_first[:1], some(device, 2, 5, 8, 64)[:, :, 2:5], some(device, 2, 5, 3, 128)[..., ::2],
              some(device, 1, 5, 3, 64).expand(2, 5, 3, 64)):
        expected = rope(x.contiguous(), positions=3)
        assert torch.equal(rope(x, positions=3), expected)
        if 0 not in x.stride():
            copy = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device).copy_(x)
            assert rope_(copy, positions=3) is copy and torch.equal(copy, expected)


def test_in_place(device):
    qkv = some(device, 2, 5, 6, 64)
    before, version = qkv.clone(), qkv._version
    q, k = qkv[:, :, :3], qkv[:, :, 3:5]
    assert all(a is b for a, b in zip(rope_(q, k, rotary_dim=32), (q, k)))
    expected = torch.cat((*rope(before[:, :, :3], before[:, :, 3:5], rotary_dim=32), before[:, :, 5:]), 2)
    assert torch.equal(qkv, expected) and qkv._version > version


def test_empty(device):
    assert rope(some(device, 0, 5, 3, 64)).shape == (0, 5, 3, 64)
    assert rope(some(device, 2, 0, 3, 64), some(device, 2, 0, 1, 64))[1].shape == (2, 0, 1, 64)
    assert rope(some(device, 0, 3, 64), positions=torch.zeros(0, device=device, dtype=torch.int32)).shape == (0, 3, 64)


@pytest.mark.parametrize("style", ["neox", "gptj"])
def test_gradient(device, style):
    q, k = some(device, 2, 5, 3, 64).requires_grad_(), some(device, 2, 5, 1, 64).requires_grad_()
    positions, d_out = torch.tensor([9, 100_000, 2, 1, 0], device=device), [some(device, *x.shape) for x in (q, k)]
    arguments = dict(inv_freq=frequencies(32, device=device).float(), style=style, attention_factor=1.5)
    results = torch.autograd.grad(rope(q, k, positions, **arguments), (q, k), d_out)
    for x, result, d_x in zip((q, k), results, d_out):
        exact = x.detach().double().requires_grad_()
        turned = reference(exact, positions.expand(2, 5), arguments["inv_freq"], style, 1.5)
        assert_close(result, torch.autograd.grad(turned, exact, d_x.double())[0])


def test_registration(device):
    x, positions = some(device, 2, 5, 3, 64).requires_grad_(), torch.arange(10, device=device).view(2, 5).int()
    turns = torch.arange(5, device=device) << 40
    for given in (positions, None):
        torch.library.opcheck(torch.ops.imbrex.rope.default, (x, given, 0, turns, "gptj", 1.0))
    torch.library.opcheck(torch.ops.imbrex.rope_.default, (x.detach().clone(), positions, 0, turns, "neox", 1.0))


def test_compile(device):
    step = torch.compile(lambda q, k, positions: rope(q, k, positions, theta=500000), fullgraph=True, dynamic=True)
    for tokens in (3, 5, 8):
        q, k = some(device, 2, tokens, 3, 64).requires_grad_(), some(device, 2, tokens, 1, 64).requires_grad_()
        for positions in (None, tokens, torch.arange(tokens, device=device)[None]):
            results, expected = step(q, k, positions), rope(q, k, positions, theta=500000)
            for result, correct in zip(results, expected):
                torch.testing.assert_close(result, correct)
            gradients = [torch.autograd.grad(one[0].float().sum(), q)[0] for one in (results, expected)]
            assert_close(gradients[0], gradients[1].double())


def test_frequencies_are_kept_only_outside_of_inference_mode(device):
    with torch.inference_mode():
        rope(some(device, 1, 5, 3, 64), theta=1234.0)
    x = some(device, 1, 5, 3, 64).requires_grad_()
    rope(x, theta=1234.0).sum().backward()
    assert x.grad is not None


def test_checker_is_silent(device):
    assert check(rope, (some(device, 2, 5, 3, 128), some(device, 2, 5, 1, 128)), schedules=5) is None
    assert check(rope_, (some(device, 5, 3, 20),), {"rotary_dim": 6}, schedules=5) is None


def test_streams_and_graphs(device):
    assert_follows_stream_and_graph(rope, some(device, 2, 64, 16, 128), some(device, 2, 64, 4, 128))


def test_messages(device):
    x = some(device, 2, 5, 3, 64)
    for arguments, options, kind, message in [
        ((x.double(),), {}, TypeError, "x.dtype: Double; must be BFloat16, Half or Float"),
        ((x[0, 0],), {}, ValueError, r"q: shape \[3, 64\]; \[..., sequence, heads, head_dim\] is needed"),
        ((x, x[:1]), {}, ValueError, r"k: shape \[1, 5, 3, 64\]; its tokens must be those of q, \[2, 5\]"),
        ((x, None, torch.ones(5)), {}, TypeError, "positions.dtype: torch.float32; must be torch.int32 or torch.int64"),
        ((x, None, torch.arange(4)), {}, ValueError, r"positions: shape \[4\]; must expand to \[2, 5\]"),
        ((x,), {"style": "llama"}, ValueError, "style: llama; must be neox or gptj"),
        ((x,), {"theta": 0}, ValueError, "theta: 0; must be greater than 1"),
        ((x,), {"rotary_dim": 65}, ValueError, "rotary_dim: 65; must be even and at most head_dim, 64"),
        ((x,), {"rotary_dim": 64, "inv_freq": torch.ones(16)}, ValueError, "rotary_dim: 64; inv_freq has 16 pairs"),
        ((x[:1],), {"inv_freq": torch.ones(40)}, ValueError, "rope.rotary_dim: 80; must be even and at most the 64"),
        ((x[:1], None, 2**31), {}, ValueError, "first_position: 2147483648; must be a 32-bit integer"),
    ]:
        options = {name: value.to(device) if isinstance(value, torch.Tensor) else value
                   for name, value in options.items()}
        arguments = [one.to(device) if isinstance(one, torch.Tensor) else one for one in arguments]
        with pytest.raises(kind, match=message):
            rope(*arguments, **options)
    with pytest.raises(RuntimeError, match="q: it requires a gradient, and rope_ overwrites its arguments"):
        rope_(x.clone().requires_grad_())
    if device.type == "cuda":
        with pytest.raises(TypeError, match="positions.device: cpu; must be cuda"):
            rope(x, positions=torch.arange(5))
