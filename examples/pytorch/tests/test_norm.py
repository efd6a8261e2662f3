"""rms_norm and layer_norm against float64."""

from typing import NamedTuple

import pytest
import torch
from comparison import assert_close, assert_follows_stream_and_graph, assert_rounded_once

import imbrex_torch
from imbrex_torch import check, layer_norm, layer_norm_, rms_norm, rms_norm_

DTYPES = [(torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float32), (torch.float16, torch.float16),
          (torch.float32, torch.float32)]


def some(device, *shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device=device).to(dtype)


class Norm(NamedTuple):
    """A norm under test. `values` is the number of its column values: weight, or weight and bias."""

    name: str
    values: int

    def __call__(self, *arguments, **options):
        return getattr(imbrex_torch, self.name)(*arguments, **options)

    def in_place(self, *arguments, **options):
        return getattr(imbrex_torch, f"{self.name}_")(*arguments, **options)

    def some_values(self, device, columns, dtype=torch.bfloat16):
        return [some(device, columns, dtype=dtype) for _ in range(self.values)]

    def exact(self, x, *values, eps=None):
        """By the formula in float64, where the arguments are not that already."""
        x, *values = (one if one is None else one.double() for one in (x, *values))
        if self.name == "layer_norm":
            return torch.nn.functional.layer_norm(x, x.shape[-1:], *values, eps=1e-5 if eps is None else eps)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + (1e-6 if eps is None else eps)) * values[0]


norms = pytest.mark.parametrize("norm", [Norm("rms_norm", 1), Norm("layer_norm", 2)], ids=lambda norm: norm.name)


@norms
@pytest.mark.parametrize("dtype, values_dtype", DTYPES)
def test_is_rounded_once(device, norm, dtype, values_dtype):
    for shape in [(64,), (3, 72), (2, 3, 136), (2, 2, 3, 512), (3, 77), (2, 4096)]:
        x, values = some(device, *shape, dtype=dtype), norm.some_values(device, shape[-1], values_dtype)
        assert_rounded_once(norm(x, *values), norm.exact(x, *values))
        assert_rounded_once(norm(x, *values, eps=0.5), norm.exact(x, *values, eps=0.5))


def test_layer_norm_without_weight_or_bias(device):
    x, weight, bias = some(device, 5, 72), some(device, 72, dtype=torch.float32), some(device, 72, dtype=torch.float32)
    norm = Norm("layer_norm", 2)
    for values in [(), (weight,), (None, bias), (weight, bias)]:
        assert_rounded_once(layer_norm(x, *values), norm.exact(x, *values))


@norms
def test_residual_is_added_and_rounded_first(device, norm):
    x, residual, values = some(device, 3, 5, 72), some(device, 3, 5, 72), norm.some_values(device, 72)
    before = x.clone(), residual.clone()
    normed, added = norm(x, *values, residual=residual)
    assert torch.equal(added, (x.float() + residual.float()).to(x.dtype))
    assert_rounded_once(normed, norm.exact(added, *values))
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


@norms
def test_in_place(device, norm):
    values = norm.some_values(device, 72)
    for name, x in strided(device):
        if name == "expanded":
            continue
        for other, residual in strided(device):
            if other == "expanded":
                continue
            expected = norm(x, *values), norm(x, *values, residual=residual)
            alone, both = x.clone(), (x.clone(), residual.clone())
            assert norm.in_place(alone, *values) is alone and torch.equal(alone, expected[0]), name
            norm.in_place(both[0], *values, residual=both[1])
            assert all(map(torch.equal, both, expected[1])), (name, other)


def test_in_place_keeps_views_and_counts_versions(device):
    whole, weight = some(device, 4, 144), some(device, 72)
    before, version = whole.clone(), whole._version
    view = whole.view(4, 72, 2)[..., 0]
    rms_norm_(view, weight)
    assert whole._version > version
    assert torch.equal(view, rms_norm(before.view(4, 72, 2)[..., 0], weight))
    assert torch.equal(whole.view(4, 72, 2)[..., 1], before.view(4, 72, 2)[..., 1])


@norms
def test_empty(device, norm):
    assert norm(some(device, 0, 72), *norm.some_values(device, 72)).shape == (0, 72)
    assert norm(some(device, 3, 0), *norm.some_values(device, 0)).shape == (3, 0)
    values = [one.requires_grad_() for one in norm.some_values(device, 72)]
    norm(some(device, 2, 0, 72), *values).sum().backward()
    assert all(torch.equal(one.grad, torch.zeros_like(one)) for one in values)


@norms
@pytest.mark.parametrize("dtype, values_dtype", DTYPES)
def test_gradient(device, norm, dtype, values_dtype):
    inputs = [some(device, 4, 3, 72, dtype=dtype), *norm.some_values(device, 72, values_dtype)]
    inputs = [one.requires_grad_() for one in inputs]
    d_out = some(device, 4, 3, 72, dtype=dtype)
    exact = [one.detach().double().requires_grad_() for one in inputs]
    expected = torch.autograd.grad(norm.exact(*exact), exact, d_out.double())
    for result, correct in zip(torch.autograd.grad(norm(*inputs), inputs, d_out), expected):
        assert_close(result, correct)
    only, = torch.autograd.grad(norm(inputs[0].detach(), *inputs[1:]), inputs[1:2], d_out)
    assert_close(only, expected[1])


@norms
@pytest.mark.parametrize("used", ["normed", "sum", "both"])
def test_gradient_with_residual(device, norm, used):
    inputs = [some(device, *shape, dtype=torch.float32).requires_grad_() for shape in [(5, 72), (5, 72)]]
    inputs += [one.requires_grad_() for one in norm.some_values(device, 72, torch.float32)]
    exact = [one.detach().double().requires_grad_() for one in inputs]

    def loss(normed, added):
        return {"normed": normed.square(), "sum": 3 * added, "both": normed.square() + 3 * added}[used].sum()

    added = exact[0] + exact[1]
    expected = torch.autograd.grad(loss(norm.exact(added, *exact[2:]), added), exact, allow_unused=True)
    x, residual, *values = inputs
    results = torch.autograd.grad(loss(*norm(x, *values, residual=residual)), inputs, allow_unused=True)
    for result, correct in zip(results, expected):
        assert (result is None) == (correct is None)
        if correct is not None:
            assert_close(result, correct, 1e-5)


@norms
def test_registration(device, norm):
    x, residual = some(device, 3, 2, 72).requires_grad_(), some(device, 3, 2, 72).requires_grad_()
    values = [one.requires_grad_() for one in norm.some_values(device, 72)]
    ops = torch.ops.imbrex
    torch.library.opcheck(getattr(ops, norm.name).default, (x, *values, 1e-6))
    torch.library.opcheck(getattr(ops, f"add_{norm.name}").default, (x, residual, *values, 1e-6))
    with torch.no_grad():
        constants = [one.detach().clone() for one in (x, residual, *values)]
        torch.library.opcheck(getattr(ops, f"{norm.name}_").default, (*constants, 1e-6))


@norms
def test_compile(device, norm):
    values = [one.requires_grad_() for one in norm.some_values(device, 72)]

    @torch.compile(fullgraph=True, dynamic=True)
    def step(x, residual):
        normed, added = norm(x, *values, residual=residual)
        return norm(normed, *values) + added

    for rows in (3, 5, 8):
        x, residual = (some(device, rows, 72).requires_grad_() for _ in range(2))
        normed, added = norm(x, *values, residual=residual)
        expected = norm(normed, *values) + added
        result = step(x, residual)
        torch.testing.assert_close(result, expected)
        gradients = [torch.autograd.grad(one.float().sum(), (x, residual, *values)) for one in (result, expected)]
        for compiled, eager in zip(*gradients):
            assert_close(compiled, eager.double(), 2e-2)


def test_compile_in_place(device):
    weight = some(device, 72)
    step = torch.compile(lambda x, residual: rms_norm_(x, weight, residual=residual), fullgraph=True)
    x, residual = some(device, 3, 72), some(device, 3, 72)
    expected = rms_norm(x, weight, residual=residual)
    step(x, residual)
    assert torch.equal(x, expected[0]) and torch.equal(residual, expected[1])


@norms
def test_checker_is_silent(device, norm):
    x, residual, values = some(device, 5, 1032), some(device, 5, 1032), norm.some_values(device, 1032)
    assert check(norm, (x, *values), {"residual": residual}, schedules=5) is None
    assert check(norm, (x[:, :77], *(one[:77] for one in values)), schedules=5) is None


@norms
def test_streams_and_graphs(device, norm):
    tensors = some(device, 64, 1024), some(device, 64, 1024), *norm.some_values(device, 1024)
    assert_follows_stream_and_graph(lambda x, residual, *values: norm(x, *values, residual=residual), *tensors)


@norms
def test_messages(device, norm):
    x, values = some(device, 3, 72), norm.some_values(device, 72)
    for arguments, kind, message in [
        ((x.double(), *values), TypeError, "x.dtype: Double; must be BFloat16, Half or Float"),
        ((x, *(one.int() for one in values)), TypeError, "weight.dtype: Int; must be BFloat16, Half or Float"),
        ((x[0, 0], *values), ValueError, r"x: shape \[\]; \[.., columns\] is needed"),
        ((x, *(one[1:] for one in values)), ValueError, r"weight: shape \[71\]; \[72\] is needed, the columns of x"),
        ((x, *(one[None] for one in values)), ValueError, r"weight: shape \[1, 72\]; \[72\] is needed"),
        ((x, *values, -1.0), ValueError, "epsilon: -1.*; must be finite and not negative"),
    ]:
        with pytest.raises(kind, match=message):
            norm(*arguments)
    with pytest.raises(TypeError, match="residual.dtype: Float; must be BFloat16, that of x"):
        norm(x, *values, residual=x.float())
    with pytest.raises(ValueError, match=r"residual: shape \[2, 72\]; must be \[3, 72\], that of x"):
        norm(x, *values, residual=x[:2])
    with pytest.raises(RuntimeError, match=f"x: it requires a gradient, and {norm.name}_ overwrites"):
        norm.in_place(x.clone().requires_grad_(), *values)
    with pytest.raises(ValueError, match="strides"):
        norm.in_place(x[:1].expand(3, 72), *values)
    if device.type == "cuda":
        with pytest.raises(TypeError, match="weight.device: cpu; must be cuda"):
            norm(x, *(one.cpu() for one in values))


def test_messages_of_a_bias(device):
    x, weight = some(device, 3, 72), some(device, 72)
    with pytest.raises(TypeError, match="bias.dtype: Float; must be BFloat16, that of weight"):
        layer_norm(x, weight, weight.float())
    with pytest.raises(ValueError, match=r"bias: shape \[71\]; \[72\] is needed, the columns of x"):
        layer_norm_(x, weight, weight[1:])
