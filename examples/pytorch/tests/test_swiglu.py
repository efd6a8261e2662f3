"""swiglu against float64."""

import pytest
import torch
from comparison import assert_close, assert_follows_stream_and_graph, assert_rounded_once

from imbrex_torch import check, swiglu

functional = torch.nn.functional
ACTIVATIONS = {"silu": functional.silu, "gelu": functional.gelu, "relu": functional.relu,
               "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh")}
VARIANTS = [(torch.bfloat16, "silu"), (torch.float16, "gelu"), (torch.float32, "gelu_tanh"), (torch.bfloat16, "relu")]


def some(device, *shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device=device).to(dtype)


@pytest.mark.parametrize("dtype, activation", VARIANTS)
def test_is_rounded_once(device, dtype, activation):
    for shape in [(64,), (3, 72), (2, 3, 136), (2, 2, 3, 512), (5, 1), (3, 77)]:
        gate, up = some(device, *shape, dtype=dtype), some(device, *shape, dtype=dtype)
        expected = ACTIVATIONS[activation](gate.double()) * up.double()
        assert_rounded_once(swiglu(gate, up, activation=activation), expected)


def test_fused_tensor(device):
    for shape in [(128,), (3, 5, 144), (3, 154)]:
        both = some(device, *shape)
        gate, up = both.chunk(2, -1)
        assert torch.equal(swiglu(both), swiglu(gate.contiguous(), up.contiguous()))


def test_strides_do_not_matter(device):
    gate, up = some(device, 72, 4, 3).permute(2, 1, 0), some(device, 4, 3, 72).transpose(0, 1)
    assert torch.equal(swiglu(gate, up), swiglu(gate.contiguous(), up.contiguous()))
    assert torch.equal(swiglu(up[:1].expand(3, 4, 72), gate), swiglu(up[:1].repeat(3, 1, 1), gate.contiguous()))


def test_empty(device):
    assert swiglu(some(device, 0, 144)).shape == (0, 72)
    assert swiglu(some(device, 3, 0)).shape == (3, 0)


@pytest.mark.parametrize("dtype, activation", VARIANTS)
def test_gradient(device, dtype, activation):
    both, d_out = some(device, 3, 5, 144, dtype=dtype).requires_grad_(), some(device, 3, 5, 72, dtype=dtype)
    exact = both.detach().double().requires_grad_()
    gate, up = exact.chunk(2, -1)
    (ACTIVATIONS[activation](gate) * up).backward(d_out.double())
    swiglu(both, activation=activation).backward(d_out)
    assert_close(both.grad, exact.grad)


def test_registration(device):
    gate, up = some(device, 3, 2, 72).requires_grad_(), some(device, 3, 2, 72).requires_grad_()
    for activation in ("silu", "relu"):
        torch.library.opcheck(torch.ops.imbrex.swiglu.default, (gate, up, activation))


def test_compile(device):
    step = torch.compile(swiglu, fullgraph=True, dynamic=True)
    for rows in (3, 5, 8):
        both = some(device, rows, 144).requires_grad_()
        result, expected = step(both), swiglu(both)
        assert torch.equal(result, expected)
        gradients = [torch.autograd.grad(one.float().sum(), both)[0] for one in (result, expected)]
        assert_close(gradients[0], gradients[1].double())


def test_checker_is_silent(device):
    assert check(swiglu, (some(device, 5, 1040),), schedules=5) is None
    assert check(swiglu, (some(device, 5, 154),), schedules=5) is None


def test_streams_and_graphs(device):
    assert_follows_stream_and_graph(swiglu, some(device, 64, 1024), some(device, 64, 1024))


def test_messages(device):
    x = some(device, 3, 72)
    for arguments, kind, message in [
        ((x.double(), x), TypeError, "gate.dtype: Double; must be BFloat16, Half or Float"),
        ((x, x.float()), TypeError, "up.dtype: Float; must be BFloat16, that of gate"),
        ((x, x[:2]), ValueError, r"up: shape \[2, 72\]; must be \[3, 72\], that of gate"),
        ((x[:, :71],), ValueError, r"gate: shape \[3, 71\]; without up it is \[..., 2 n\]"),
        ((x[0, 0], x[0, 0]), ValueError, r"gate: shape \[\]; \[.., columns\] is needed"),
    ]:
        with pytest.raises(kind, match=message):
            swiglu(*arguments)
    with pytest.raises(ValueError, match="activation: 'tanh'; one of silu, gelu, gelu_tanh, relu is allowed"):
        swiglu(x, activation="tanh")
    if device.type == "cuda":
        with pytest.raises(TypeError, match="up.device: cpu; must be cuda"):
            swiglu(x, x.cpu())
