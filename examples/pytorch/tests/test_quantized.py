import copy
import io
import pickle

import pytest
import torch

import imbrex_torch
from imbrex_torch import QuantizedLinear, QuantizedWeight, quantize
from reference import relative_error

FORMATS = ["int4", "int8", "fp8", "mxfp4"]
LINEAR = {name: getattr(imbrex_torch, f"linear_{name}") for name in FORMATS}
# The error of a normally distributed weight, relative to its norm.
LIMITS = {"int4": 0.11, "int8": 0.01, "fp8": 0.03, "mxfp4": 0.12}


def random_weight(device, out_features=136, in_features=256, dtype=torch.bfloat16):
    return 0.05 * torch.randn(out_features, in_features, device=device, dtype=dtype)


def product(x, weight, bias=None):
    exact = x.double() @ weight.dequantize().double().T
    return exact if bias is None else exact + bias.double()


@pytest.mark.parametrize("format", FORMATS)
def test_linear(device, format):
    weight = random_weight(device)
    packed = quantize(weight, format)
    assert packed.shape == weight.shape and packed.packed.device == weight.device
    assert relative_error(packed.dequantize(), weight) < LIMITS[format]
    bias = torch.randn(136, device=device, dtype=torch.bfloat16)
    for rows in (1, 9, 40, 130, 1100):  # GEMV, GEMV of 16 rows, fused dequantisation twice, dequantised first
        x = torch.randn(rows, 256, device=device, dtype=torch.bfloat16)
        assert relative_error(LINEAR[format](x, packed), product(x, packed)) < 0.003
        assert relative_error(LINEAR[format](x, packed, bias), product(x, packed, bias)) < 0.003


@pytest.mark.parametrize("format,group_size", [("int4", 32), ("int4", 64), ("int8", 32), ("int8", 128)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_other_groups_and_types(device, format, group_size, dtype):
    if device.type == "cpu":
        pytest.skip("few variants are compiled for the CPU")
    weight = random_weight(device, 1000, 1024, dtype)
    packed = quantize(weight, format, group_size=group_size)
    assert packed.dtype == dtype and packed.group_size == group_size
    assert relative_error(packed.dequantize(), weight) < LIMITS[format]
    for rows in (1, 9, 40, 300):
        x = torch.randn(rows, 1024, device=device, dtype=dtype)
        assert relative_error(LINEAR[format](x, packed), product(x, packed)) < 0.003


@pytest.mark.parametrize("format", FORMATS)
def test_fp16_on_a_gpu(device, format):
    if device.type == "cpu":
        pytest.skip("few variants are compiled for the CPU")
    packed = quantize(random_weight(device), format, dtype=torch.float16)
    x = torch.randn(5, 256, device=device, dtype=torch.float16)
    assert relative_error(LINEAR[format](x, packed), product(x, packed)) < 0.001


def test_values_that_are_quantised_already(device):
    """Every code comes back, times its scale."""
    codes = torch.arange(136 * 256, device=device).reshape(136, 256)
    scales = 2.0 ** torch.randint(-9, 0, (136, 2), device=device)
    int4 = codes % 16 - 8
    packed = QuantizedWeight.from_values(int4.to(torch.int8), scales, "int4")
    assert packed.group_size == 128
    assert torch.equal(packed.dequantize().float(), int4 * scales.repeat_interleave(128, 1))
    rows = scales[:, 0]
    int8 = codes % 256 - 128
    packed = QuantizedWeight.from_values(int8.to(torch.int8), rows, "int8")
    assert packed.group_size == 0
    assert torch.equal(packed.dequantize().float(), int8 * rows[:, None])
    e4m3 = torch.where(codes % 128 == 127, 0, codes % 256).to(torch.uint8).view(torch.float8_e4m3fn)  # no NaN
    packed = QuantizedWeight.from_values(e4m3, rows, "fp8")
    assert torch.equal(packed.dequantize().float(), e4m3.float() * rows[:, None])
    e2m1 = codes % 16
    magnitudes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], device=device)
    exponents = torch.randint(-9, 2, (136, 8), device=device)
    pairs = (e2m1[:, ::2] | e2m1[:, 1::2] << 4).to(torch.uint8)
    packed = QuantizedWeight.from_values(pairs, (exponents + 127).to(torch.uint8), "mxfp4")
    expected = torch.where(e2m1 < 8, 1, -1) * magnitudes[e2m1 % 8] * 2.0 ** exponents.repeat_interleave(32, 1)
    assert torch.equal(packed.dequantize().float(), expected)


def test_rounding_of_each_format(device):
    weight = random_weight(device, dtype=torch.float32)
    largest = weight.abs().amax(1, keepdim=True)
    error = (quantize(weight, "int8").dequantize().float() - weight).abs()
    assert (error <= largest / 127 / 2 * 1.001 + weight.abs() / 256).all()  # and the rounding of dequantize to bf16
    error = (quantize(weight, "fp8").dequantize().float() - weight).abs()
    assert (error <= weight.abs() / 15 + largest / 448 / 512).all()
    groups = weight.reshape(136, 2, 128)
    plain = groups.abs().amax(2, keepdim=True) / 7
    plain_error = (groups / plain).round() * plain - groups
    error = quantize(weight, "int4").dequantize().float() - weight
    assert error.norm() < plain_error.norm()
    on_grid = torch.tensor([0, 0.5, -1, 1.5, 2, -3, 4, -6], device=device).repeat(4, 4) / 64
    assert torch.equal(quantize(on_grid, "mxfp4").dequantize().float(), on_grid)
    # Ties go to the even code: 0.25 to 0, 0.75 and 1.25 to 1, 1.75 and 2.5 to 2, 3.5 to 4, 5 to 4.
    ties = torch.tensor([0.25, 0.75, 1.25, -1.75, 2.5, 3.5, -5, 6], device=device).repeat(1, 4)
    rounded = torch.tensor([0, 1, 1, -2, 2, 4, -4, 6.0], device=device).repeat(1, 4)
    assert torch.equal(quantize(ties, "mxfp4").dequantize().float(), rounded)
    for format in FORMATS:
        assert (quantize(torch.zeros(8, 128, device=device), format).dequantize() == 0).all()


def test_gradients(device):
    packed = quantize(random_weight(device), "int8")
    x = torch.randn(2, 5, 256, device=device, dtype=torch.bfloat16, requires_grad=True)
    bias = torch.randn(136, device=device, dtype=torch.bfloat16, requires_grad=True)
    d_out = torch.randn(2, 5, 136, device=device, dtype=torch.bfloat16)
    d_x, d_bias = torch.autograd.grad(LINEAR["int8"](x, packed, bias), (x, bias), d_out)
    assert relative_error(d_x, d_out.double() @ packed.dequantize().double()) < 0.003
    assert relative_error(d_bias, d_out.double().sum((0, 1))) < 0.003
    d_x, = torch.autograd.grad(LINEAR["int8"](x, packed), x, d_out)
    assert d_x.shape == x.shape


def test_shapes_and_strides(device):
    packed = quantize(random_weight(device), "int4")
    x = torch.randn(3, 4, 256, device=device, dtype=torch.bfloat16)
    expected = LINEAR["int4"](x.reshape(12, 256), packed)
    assert torch.equal(LINEAR["int4"](x, packed), expected.reshape(3, 4, 136))
    assert torch.equal(LINEAR["int4"](x[0, 0], packed), LINEAR["int4"](x[0, :1], packed)[0])
    wide = torch.randn(12, 300, device=device, dtype=torch.bfloat16)
    for view in (wide[:, 8:264], wide[:, 3:259], wide.T[3:259].T, x.transpose(0, 1)):
        assert torch.equal(LINEAR["int4"](view, packed), LINEAR["int4"](view.contiguous(), packed))
    assert LINEAR["int4"](x[:0], packed).shape == (0, 4, 136)


def test_sizes_without_multiples(device):
    """72 columns of K, and 70 rows of weights: those of D are no multiples of 16 bytes."""
    packed = quantize(random_weight(device, 70, 72), "fp8")
    for rows in (1, 33, 130):
        x = torch.randn(rows, 72, device=device, dtype=torch.bfloat16)
        assert relative_error(LINEAR["fp8"](x, packed), product(x, packed)) < 0.003


def test_module(device):
    linear = torch.nn.Linear(256, 136, device=device, dtype=torch.bfloat16)
    layer = QuantizedLinear.from_linear(linear, "int8")
    x = torch.randn(5, 256, device=device, dtype=torch.bfloat16)
    out = layer(x)
    assert relative_error(out, linear(x)) < 0.02
    assert not list(layer.parameters()) and str(layer) == (
        "QuantizedLinear(in_features=256, out_features=136, bias=True, format=int8)")
    other = QuantizedLinear(256, 136, format="int8", device=device)
    saved = io.BytesIO()
    torch.save(layer.state_dict(), saved)
    other.load_state_dict(torch.load(io.BytesIO(saved.getvalue()), weights_only=True))
    assert torch.equal(other(x), out)
    assert torch.equal(copy.deepcopy(layer).bfloat16()(x), out)
    restored = pickle.loads(pickle.dumps(layer.weight))
    assert torch.equal(LINEAR["int8"](x, restored, layer.bias), out)
    assert QuantizedLinear.from_linear(torch.nn.Linear(256, 8, bias=False, device=device), "int8").bias is None


def test_errors(device):
    weight = random_weight(device)
    packed = quantize(weight, "int8")
    x = torch.randn(5, 256, device=device, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="format: 'int3'; must be one of 'int4', 'int8', 'fp8', 'mxfp4'"):
        quantize(weight, "int3")
    with pytest.raises(ValueError, match=r"weight: shape \[256\]; \[out_features, in_features\] is needed"):
        quantize(weight[0], "int8")
    with pytest.raises(TypeError, match="weight.dtype: torch.int8; must be a floating point type"):
        quantize(weight.to(torch.int8), "int8")
    with pytest.raises(ValueError, match=r"weight: shape \[136, 200\]; in_features must be a multiple of 128"):
        quantize(weight[:, :200], "int4")
    with pytest.raises(ValueError, match="format: int4 in groups of 16; int4 has groups of 32, 64 or 128"):
        quantize(weight, "int4", group_size=16)
    with pytest.raises(ValueError, match="weight: not all elements are finite"):
        quantize(weight / 0, "int8")
    with pytest.raises(ValueError, match=r"scales: 2\^4 in row 0 of a tile; scales of 4-bit floats are at most 2"):
        quantize(weight * 0 + 100, "mxfp4")
    with pytest.raises(TypeError, match="dtype: Float; must be BFloat16 or Half"):
        quantize(weight, "int8", dtype=torch.float32)
    with pytest.raises(TypeError, match="values.dtype: torch.uint8; must be torch.int8 for int4"):
        QuantizedWeight.from_values(weight.to(torch.uint8), weight, "int4")
    with pytest.raises(ValueError, match=r"scales: shape \[136, 3\]; \[136\] or \[136, groups\] is needed"):
        QuantizedWeight.from_values(weight.to(torch.int8), weight[:, :3], "int4")
    with pytest.raises(ValueError, match="weight.format: 'int8'; must be 'int4'"):
        LINEAR["int4"](x, packed)
    with pytest.raises(ValueError, match=r"x: shape \[5, 200\]; \[\.\.\., 256\] is needed"):
        LINEAR["int8"](x[:, :200], packed)
    with pytest.raises(TypeError, match="x.dtype: Half; the weights were packed for BFloat16"):
        LINEAR["int8"](x.half(), packed)
    with pytest.raises(TypeError, match="bias.dtype: Float; must be BFloat16, that of x"):
        LINEAR["int8"](x, packed, torch.zeros(136, device=device))
    with pytest.raises(ValueError, match=r"bias: shape \[5\]; 136 elements are needed"):
        LINEAR["int8"](x, packed, torch.zeros(5, device=device, dtype=torch.bfloat16))
    packed.packed = packed.packed[:-1]
    with pytest.raises(ValueError, match="packed: shape .*; 49696 elements are needed"):
        LINEAR["int8"](x, packed)
    if device.type == "cuda":
        with pytest.raises(TypeError, match="packed.device: cpu; must be cuda:0"):
            LINEAR["int8"](x, quantize(weight, "int8").to("cpu"))


def test_opcheck(device):
    packed = quantize(random_weight(device), "int8")
    x = torch.randn(5, 256, device=device, dtype=torch.bfloat16, requires_grad=True)
    bias = torch.randn(136, device=device, dtype=torch.bfloat16, requires_grad=True)
    arguments = (136, "int8", 0, torch.bfloat16)
    torch.library.opcheck(torch.ops.imbrex.linear_quantized.default, (x, packed.packed, bias, *arguments))
    torch.library.opcheck(torch.ops.imbrex.linear_quantized.default, (x, packed.packed, None, *arguments))
    torch.library.opcheck(torch.ops.imbrex.dequantize_weights.default,
                          (packed.packed, 136, 256, "int8", 0, torch.bfloat16))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_without_graph_breaks(device, dynamic):
    layer = QuantizedLinear.from_linear(torch.nn.Linear(256, 136, device=device, dtype=torch.bfloat16), "int8")

    def step(x):
        return (layer(x * 2) + 1).float().square().sum()

    compiled = torch.compile(step, fullgraph=True, dynamic=dynamic)
    for rows in (5, 20):
        x = torch.randn(rows, 256, device=device, dtype=torch.bfloat16, requires_grad=True)
        result, expected = compiled(x), step(x)
        assert torch.allclose(result, expected, rtol=1e-2)
        one, other = (torch.autograd.grad(y, x)[0] for y in (result, expected))
        assert relative_error(one, other) < 0.01


def test_check_finds_no_hazard():
    packed = quantize(random_weight("cpu", 70, 128), "int8")
    x = torch.randn(3, 128, dtype=torch.bfloat16, requires_grad=True)
    assert imbrex_torch.check(LINEAR["int8"], (x, packed), schedules=5, backward=True) is None


def test_streams_and_graphs(device):
    if device.type != "cuda":
        pytest.skip("streams and graphs are CUDA's")
    packed = quantize(random_weight(device, 4096, 4096), "int4")
    torch.cuda.synchronize()
    for rows in (1, 16, 64, 512):
        x = torch.randn(rows, 4096, device=device, dtype=torch.bfloat16)
        expected = LINEAR["int4"](x, packed)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            assert torch.equal(LINEAR["int4"](x, packed), expected)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outs = [LINEAR["int4"](x, packed) for _ in range(3)]
        for out in outs:
            out.zero_()
        graph.replay()
        assert all(torch.equal(out, expected) for out in outs)
