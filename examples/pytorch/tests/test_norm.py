"""rms_norm against float64."""

import pytest
import torch
from comparison import assert_close, assert_follows_stream_and_graph, assert_rounded_once

from imbrex_torch import check, rms_norm, rms_norm_

DTYPES = [(torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float32), (torch.float16, torch.float16),
          (torch.float32, torch.float32)]


def reference(x, weight, eps=1e-6):
    x, weight = x.double(), weight.double()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def some(device, *shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device=device).to(dtype)


@pytest.mark.parametrize("dtype, weight_dtype", DTYPES)
def test_is_rounded_once(device, dtype, weight_dtype):
    for shape in [(64,), (3, 72), (2, 3, 136), (2, 2, 3, 512), (5, 1), (3, 77), (2, 4096)]:
        x, weight = some(device, *shape, dtype=dtype), some(device, shape[-1], dtype=weight_dtype)
        assert_rounded_once(rms_norm(x, weight), reference(x, weight))
        assert_rounded_once(rms_norm(x, weight, 0.5), reference(x, weight, 0.5))


def test_residual_is_added_and_rounded_first(device):
    x, residual, weight = some(device, 3, 5, 72), some(device, 3, 5, 72), some(device, 72)
    before = x.clone(), residual.clone()
    normed, added = rms_norm(x, weight, residual=residual)
    assert torch.equal(added, (x.float() + residual.float()).to(x.dtype))
    assert_rounded_once(normed, reference(added, weight))
    assert torch.equal(x, before[0]) and torch.equal(residual, before[1])


def strided(device):
    """Tensors [2, 3, 4, 72] of all kinds of strides."""
    yield "transposed", some(device, 4, 3, 2, 72).transpose(0, 2)
    yield "heads of a token", some(device, 2, 3, 7, 72)[:, :, 1:5]
    yield "every other column", some(device, 2, 3, 4, 144)[..., ::2]
    yield "columns first", some(device, 72, 2, 3, 4).movedim(0, -1)
    yield "expanded", some(device, 3, 1, 72).expand(2, 3, 4, 72)


def test_strides_do_not_matter(device):
    weight = some(device, 144)[::2]
    for name, x in strided(device):
        assert torch.equal(rms_norm(x, weight), rms_norm(x.contiguous(), weight.contiguous())), name
        for other, residual in strided(device):
            results = rms_norm(x, weight, residual=residual)
            expected = rms_norm(x.contiguous(), weight.contiguous(), residual=residual.contiguous())
            assert all(map(torch.equal, results, expected)), (name, other)


def test_in_place(device):
    weight = some(device, 72)
    for name, x in strided(device):
        if name == "expanded":
            continue
        for other, residual in strided(device):
            if other == "expanded":
                continue
            expected = rms_norm(x, weight), rms_norm(x, weight, residual=residual)
            alone, both = x.clone(), (x.clone(), residual.clone())
            assert rms_norm_(alone, weight) is alone and torch.equal(alone, expected[0]), name
            rms_norm_(both[0], weight, residual=both[1])
            assert all(map(torch.equal, both, expected[1])), (name, other)


def test_in_place_keeps_views_and_counts_versions(device):
    whole, weight = some(device, 4, 144), some(device, 72)
    before, version = whole.clone(), whole._version
    view = whole.view(4, 72, 2)[..., 0]
    rms_norm_(view, weight)
    assert whole._version > version
    assert torch.equal(view, rms_norm(before.view(4, 72, 2)[..., 0], weight))
    assert torch.equal(whole.view(4, 72, 2)[..., 1], before.view(4, 72, 2)[..., 1])


def test_empty(device):
    assert rms_norm(some(device, 0, 72), some(device, 72)).shape == (0, 72)
    assert rms_norm(some(device, 3, 0), some(device, 0)).shape == (3, 0)
    weight = some(device, 72).requires_grad_()
    rms_norm(some(device, 2, 0, 72), weight).sum().backward()
    assert torch.equal(weight.grad, torch.zeros_like(weight))


@pytest.mark.parametrize("dtype, weight_dtype", DTYPES)
def test_gradient(device, dtype, weight_dtype):
    x, d_out = some(device, 4, 3, 72, dtype=dtype).requires_grad_(), some(device, 4, 3, 72)
    weight = some(device, 72, dtype=weight_dtype).requires_grad_()
    exact = [one.detach().double().requires_grad_() for one in (x, weight)]
    expected = torch.autograd.grad(reference(*exact), exact, d_out.double())
    for result, correct in zip(torch.autograd.grad(rms_norm(x, weight), (x, weight), d_out.to(dtype)), expected):
        assert_close(result, correct)


@pytest.mark.parametrize("used", ["normed", "sum", "both"])
def test_gradient_with_residual(device, used):
    x, residual, weight = (some(device, *shape, dtype=torch.float32).requires_grad_()
                           for shape in [(5, 72), (5, 72), (72,)])
    exact = [one.detach().double().requires_grad_() for one in (x, residual, weight)]

    def loss(normed, added):
        return {"normed": normed.square(), "sum": 3 * added, "both": normed.square() + 3 * added}[used].sum()

    expected = torch.autograd.grad(loss(reference(exact[0] + exact[1], exact[2]), exact[0] + exact[1]), exact,
                                   allow_unused=True)
    results = torch.autograd.grad(loss(*rms_norm(x, weight, residual=residual)), (x, residual, weight),
                                  allow_unused=True)
    for result, correct in zip(results, expected):
        assert (result is None) == (correct is None)
        if correct is not None:
            assert_close(result, correct, 1e-5)


def test_registration(device):
    x, residual, weight = (some(device, *shape).requires_grad_() for shape in [(3, 2, 72), (3, 2, 72), (72,)])
    torch.library.opcheck(torch.ops.imbrex.rms_norm.default, (x, weight, 1e-6))
    torch.library.opcheck(torch.ops.imbrex.add_rms_norm.default, (x, residual, weight, 1e-6))
    with torch.no_grad():
        constants = [one.detach().clone() for one in (x, residual, weight)]
        torch.library.opcheck(torch.ops.imbrex.rms_norm_.default, (*constants, 1e-6))


def test_compile(device):
    weight = some(device, 72).requires_grad_()

    @torch.compile(fullgraph=True, dynamic=True)
    def step(x, residual):
        normed, added = rms_norm(x, weight, residual=residual)
        return rms_norm(normed, weight) + added

    for rows in (3, 5, 8):
        x, residual = (some(device, rows, 72).requires_grad_() for _ in range(2))
        normed, added = rms_norm(x, weight, residual=residual)
        expected = rms_norm(normed, weight) + added
        result = step(x, residual)
        torch.testing.assert_close(result, expected)
        gradients = [torch.autograd.grad(one.float().sum(), (x, residual, weight)) for one in (result, expected)]
        for compiled, eager in zip(*gradients):
            assert_close(compiled, eager.double(), 2e-2)


def test_compile_in_place(device):
    weight = some(device, 72)
    step = torch.compile(lambda x, residual: rms_norm_(x, weight, residual=residual), fullgraph=True)
    x, residual = some(device, 3, 72), some(device, 3, 72)
    expected = rms_norm(x, weight, residual=residual)
    step(x, residual)
    assert torch.equal(x, expected[0]) and torch.equal(residual, expected[1])


def test_checker_is_silent(device):
    x, residual, weight = some(device, 5, 1032), some(device, 5, 1032), some(device, 1032)
    assert check(rms_norm, (x, weight), {"residual": residual}, schedules=5) is None
    assert check(rms_norm, (x[:, :77], weight[:77]), schedules=5) is None


def test_streams_and_graphs(device):
    tensors = some(device, 64, 1024), some(device, 1024), some(device, 64, 1024)
    assert_follows_stream_and_graph(lambda x, weight, residual: rms_norm(x, weight, residual=residual), *tensors)


def test_messages(device):
    x, weight = some(device, 3, 72), some(device, 72)
    for arguments, kind, message in [
        ((x.double(), weight), TypeError, "x.dtype: Double; must be BFloat16, Half or Float"),
        ((x, weight.int()), TypeError, "weight.dtype: Int; must be BFloat16, Half or Float"),
        ((x[0, 0], weight), ValueError, r"x: shape \[\]; \[.., columns\] is needed"),
        ((x, weight[1:]), ValueError, r"weight: shape \[71\]; \[72\] is needed, the columns of x"),
        ((x, weight[None]), ValueError, r"weight: shape \[1, 72\]; \[72\] is needed"),
        ((x, weight, -1.0), ValueError, "epsilon: -1.*; must be finite and not negative"),
    ]:
        with pytest.raises(kind, match=message):
            rms_norm(*arguments)
    with pytest.raises(TypeError, match="residual.dtype: Float; must be BFloat16, that of x"):
        rms_norm(x, weight, residual=x.float())
    with pytest.raises(ValueError, match=r"residual: shape \[2, 72\]; must be \[3, 72\], that of x"):
        rms_norm(x, weight, residual=x[:2])
    with pytest.raises(RuntimeError, match="x: it requires a gradient, and rms_norm_ overwrites"):
        rms_norm_(x.clone().requires_grad_(), weight)
    with pytest.raises(ValueError, match="strides"):
        rms_norm_(x[:1].expand(3, 72), weight)
    if device.type == "cuda":
        with pytest.raises(TypeError, match="weight.device: cpu; must be cuda"):
            rms_norm(x, weight.cpu())
