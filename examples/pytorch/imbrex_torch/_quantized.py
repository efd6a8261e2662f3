"""Linear layers with quantised weights."""

import dataclasses

import torch

from ._library import native  # noqa: F401  (registers the operators)

_GROUPS = {"int4": 128, "int8": 0, "fp8": 0, "mxfp4": 32}
_AT_ONCE = 1 << 20  # elements that are quantised at once, for the caches of a CPU and the memory of a GPU


@dataclasses.dataclass
class QuantizedWeight:
    """A weight [out_features, in_features], prepacked in the layout that the kernels read. Made by `quantize`.

    packed holds the values and scales as bytes. group_size is the number of elements of a row that share a scale, 0 if the
    whole row does. dtype is that of the activations. Plain data: it can be pickled, or kept in the state of a module
    (QuantizedLinear).
    """

    packed: torch.Tensor
    format: str
    out_features: int
    in_features: int
    group_size: int
    dtype: torch.dtype

    @staticmethod
    def from_values(values, scales, format, *, dtype=torch.bfloat16):
        """Packs values that are quantised already, such as those of a checkpoint: a weight is value * scale.

        int4: int8 values from -8 to 7 [out, in] and scales [out, in / 32, / 64 or / 128]. int8: the same, or scales [out].
        fp8: float8_e4m3fn values and scales [out]. mxfp4: uint8 values [out, in / 2], two e2m1 in a byte, the first in
        the low bits, and uint8 scales [out, in / 32], exponents with a bias of 127.
        """
        if format not in _GROUPS:
            raise ValueError(f"format: {format!r}; must be one of {', '.join(map(repr, _GROUPS))}")
        needed = {"fp8": torch.float8_e4m3fn, "mxfp4": torch.uint8}.get(format, torch.int8)
        if values.dtype != needed:
            raise TypeError(f"values.dtype: {values.dtype}; must be {needed} for {format}")
        if values.dim() != 2:
            raise ValueError(f"values: shape {list(values.shape)}; [out_features, in_features] is needed")
        out_features, in_features = values.shape
        if format == "mxfp4":
            in_features *= 2
        group_size = _group_of(scales, out_features, in_features)
        if format == "int4":
            values = (values[:, ::2] & 15 | values[:, 1::2] << 4).view(torch.uint8)
        if format != "mxfp4":
            scales = scales.to(dtype if group_size else torch.float32)
        packed = torch.ops.imbrex.pack_weights(values, scales, in_features, format, group_size, dtype)
        return QuantizedWeight(packed, format, out_features, in_features, group_size, dtype)

    @property
    def shape(self):
        return torch.Size((self.out_features, self.in_features))

    def to(self, device):
        return dataclasses.replace(self, packed=self.packed.to(device))

    def dequantize(self):
        """The weight as a matrix of `dtype`."""
        return _dequantized(self.packed, *self._format(), self.in_features)

    def _format(self):
        return self.out_features, self.format, self.group_size, self.dtype


def quantize(weight, format, *, group_size=None, dtype=None):
    """Quantises a weight [out_features, in_features] to "int4", "int8", "fp8" (e4m3) or "mxfp4", for the linear_* below.

    group_size elements of a row share a scale: 32, 64 or 128 of int4 (default 128) and int8, 32 of mxfp4; 0, the default of
    int8 and the only one of fp8, means the whole row. in_features is a multiple of it, and of 8. dtype is that of the
    activations, torch.bfloat16 or torch.float16; by default that of the weight, or bfloat16.

    int8 and fp8 map the largest magnitude to the largest value. int4 and mxfp4 take the scale with the least squared
    error. Packing runs on the CPU, for GPU tensors too; the result is on the weight's device.
    """
    if format not in _GROUPS:
        raise ValueError(f"format: {format!r}; must be one of {', '.join(map(repr, _GROUPS))}")
    if weight.dim() != 2 or weight.numel() == 0:
        raise ValueError(f"weight: shape {list(weight.shape)}; [out_features, in_features] is needed")
    if not weight.is_floating_point():
        raise TypeError(f"weight.dtype: {weight.dtype}; must be a floating point type")
    group_size = _GROUPS[format] if group_size is None else group_size
    step = max(group_size, 8)
    if weight.shape[1] % step != 0:
        raise ValueError(f"weight: shape {list(weight.shape)}; in_features must be a multiple of {step}")
    if not weight.isfinite().all():
        raise ValueError("weight: not all elements are finite")
    if dtype is None:
        dtype = torch.float16 if weight.dtype == torch.float16 else torch.bfloat16
    some = [_QUANTIZERS[format](rows.float().reshape(len(rows), -1, group_size or rows.shape[1]),
                                dtype if group_size else torch.float32)
            for rows in weight.detach().split(max(_AT_ONCE // weight.shape[1], 1))]
    values, scales = (torch.cat(parts) for parts in zip(*some))
    scales = scales.squeeze(2) if group_size else scales.view(-1)
    return QuantizedWeight.from_values(values.flatten(1), scales, format, dtype=dtype)


def _to_int8(groups, scale_type):
    largest = groups.abs().amax(2, keepdim=True)
    scales = _reaching(largest / 127, largest / 127.5, scale_type)
    return _multiples(groups, scales, -127, 127), scales


def _to_fp8(groups, scale_type):
    scales = groups.abs().amax(2, keepdim=True) / 448
    scales = scales.where(scales >= torch.finfo(torch.float32).tiny, 0)  # a row too small for a scale becomes zeros
    return _over(groups, scales).clamp(-448, 448).to(torch.float8_e4m3fn), scales


def _to_int4(groups, scale_type):
    """Scales for which the largest magnitude becomes 6.5 to 9 steps, towards -8 and towards 7."""
    extreme = groups.gather(2, groups.abs().argmax(2, keepdim=True))
    candidates = [(side * extreme / (eighths / 8)).to(scale_type) for eighths in range(52, 73, 2) for side in (-1, 1)]
    scales = _least_error(groups, candidates, lambda scale: (groups * _over(1.0, scale.float())).round_()
                          .clamp_(-8, 7).mul_(scale.float()))
    return _multiples(groups, scales, -8, 7), scales


def _to_mxfp4(groups, scale_type):
    """Powers of two that bring the largest magnitude to 4 up to 8, which saturates at 6, or to half of that."""
    largest = groups.abs().amax(2, keepdim=True)
    exponent = torch.frexp(largest).exponent - 3  # frexp is 0.5 up to 1
    candidates = [(exponent + more).clamp(-127, 127).where(largest > 0, -127) for more in (0, 1)]
    exponent = _least_error(groups, candidates, lambda e: torch.ldexp(_to_e2m1(torch.ldexp(groups, -e)), e))
    values = _e2m1_codes(_to_e2m1(torch.ldexp(groups, -exponent))).flatten(1)
    return values[:, ::2] | values[:, 1::2] << 4, (exponent + 127).to(torch.uint8)


_QUANTIZERS = {"int4": _to_int4, "int8": _to_int8, "fp8": _to_fp8, "mxfp4": _to_mxfp4}


def _over(values, scales):
    """values / scales, 0 where the scale is 0."""
    return torch.where(scales == 0, 0.0, values / scales)


def _multiples(values, scales, lowest, highest):
    # In double: a quotient of floats is rounded, and half a step might become more.
    return _over(values.double(), scales.double()).round().clamp(lowest, highest).to(torch.int8)


def _reaching(wanted, least, scale_type):
    """The scales in their type, the next larger one if rounding made them less than `least`."""
    scales = wanted.to(scale_type)
    bits = torch.int16 if scale_type.itemsize == 2 else torch.int32  # of positive floats, in the order of their values
    return torch.where(scales.float() < least, (scales.view(bits) + 1).view(scale_type), scales)


def _least_error(groups, scales, quantised):
    """Of each group the one of `scales` for which quantised(scale) has the least squared error."""
    best, least = scales[0], torch.inf
    for scale in scales:
        error = quantised(scale).sub_(groups).square_().sum(2, keepdim=True)
        best = torch.where(error < least, scale, best)
        least = error.clamp(max=least)
    return best


def _to_e2m1(values):
    """The nearest of 0, 0.5, 1, 1.5, 2, 3, 4 and 6 and their negatives, ties to even."""
    magnitude = values.abs()
    step = torch.where(magnitude < 2, 0.5, torch.where(magnitude < 4, 1.0, 2.0))
    return (values / step).round_().mul_(step).clamp_(-6, 6)


def _e2m1_codes(values):
    """Of values that are e2m1: the sign in bit 3."""
    magnitude = values.abs()
    code = torch.where(magnitude < 2, 2 * magnitude, torch.where(magnitude < 4, magnitude + 2, magnitude / 2 + 4))
    return code.to(torch.uint8) | values.signbit().to(torch.uint8) << 3


def _group_of(scales, out_features, in_features):
    """The elements of a row that share a scale; 0: all."""
    if scales.shape == (out_features,):
        return 0
    if scales.dim() != 2 or len(scales) != out_features or scales.shape[1] < 1 or in_features % scales.shape[1] != 0:
        raise ValueError(f"scales: shape {list(scales.shape)}; [{out_features}] or [{out_features}, groups] is needed, "
                         f"and the {in_features} columns are a multiple of groups")
    return in_features // scales.shape[1]


def linear_int4(x, weight, bias=None):
    """x W^T + bias with a weight of quantize(W, "int4"): x is bf16 or fp16 [..., in_features], bias [out_features].

    The kernel dequantises in registers: up to 16 rows of x at the speed of reading the weight. From 128 rows on the weight
    is dequantised into a temporary matrix first. With a gradient for x and bias. On the GPU it needs Hopper.

    Launches begin to read the weight before the kernel before them in the stream has finished: do not write the packed
    bytes by a kernel right before.
    """
    return _linear(x, weight, bias, "int4")


def linear_int8(x, weight, bias=None):
    """The same with a weight of quantize(W, "int8")."""
    return _linear(x, weight, bias, "int8")


def linear_fp8(x, weight, bias=None):
    """The same with a weight of quantize(W, "fp8"), e4m3. x stays in 16 bits."""
    return _linear(x, weight, bias, "fp8")


def linear_mxfp4(x, weight, bias=None):
    """The same with a weight of quantize(W, "mxfp4")."""
    return _linear(x, weight, bias, "mxfp4")


def _linear(x, weight, bias, format):
    if weight.format != format:
        raise ValueError(f"weight.format: {weight.format!r}; must be {format!r}")
    if x.dim() == 0 or x.shape[-1] != weight.in_features:
        raise ValueError(f"x: shape {list(x.shape)}; [..., {weight.in_features}] is needed")
    return torch.ops.imbrex.linear_quantized(x, weight.packed, bias, *weight._format())


class QuantizedLinear(torch.nn.Module):
    """torch.nn.Linear with a quantised weight.

        model.layer = QuantizedLinear.from_linear(model.layer, "int4")

    Its state are the buffers packed and bias. A module made with the same arguments can load them.
    """

    def __init__(self, in_features, out_features, bias=True, format="int4", *, group_size=None, device=None,
                 dtype=torch.bfloat16):
        super().__init__()
        zeros = torch.zeros(out_features, in_features, dtype=dtype)
        self._use(quantize(zeros, format, group_size=group_size).to(device or "cpu"))
        self.register_buffer("bias", torch.zeros(out_features, dtype=dtype, device=device) if bias else None)

    @classmethod
    def from_linear(cls, linear, format, *, group_size=None, dtype=None):
        made = cls.__new__(cls)
        torch.nn.Module.__init__(made)
        made._use(quantize(linear.weight, format, group_size=group_size, dtype=dtype))
        made.register_buffer("bias", None if linear.bias is None else linear.bias.detach().to(made.dtype))
        return made

    def _use(self, weight):
        self.register_buffer("packed", weight.packed)
        self.out_features, self.in_features = weight.out_features, weight.in_features
        self.format, self.group_size, self.dtype = weight.format, weight.group_size, weight.dtype

    @property
    def weight(self):
        return QuantizedWeight(self.packed, self.format, self.out_features, self.in_features, self.group_size,
                               self.dtype)

    def forward(self, x):
        return _linear(x, self.weight, self.bias, self.format)

    def extra_repr(self):
        groups = f", group_size={self.group_size}" if self.group_size else ""
        return (f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
                f"format={self.format}{groups}")


def _dequantized(packed, out_features, format, group_size, dtype, in_features):
    values = torch.ops.imbrex.dequantize_weights(packed, out_features, in_features, format, group_size, dtype)
    if group_size:
        return values
    scales = packed[-4 * out_features :].view(torch.float32)
    return (values * scales[:, None]).to(dtype)


@torch.library.register_fake("imbrex::linear_quantized")
def _(x, packed, bias, out_features, *more):
    return torch.empty((*x.shape[:-1], out_features), dtype=x.dtype, device=x.device)


@torch.library.register_fake("imbrex::dequantize_weights")
def _(packed, out_features, in_features, format, group_size, dtype):
    return torch.empty((out_features, in_features), dtype=dtype, device=packed.device)


def _save(ctx, inputs, output):
    x, packed, bias, *ctx.format = inputs
    ctx.in_features, ctx.has_bias = x.shape[-1], bias is not None
    ctx.save_for_backward(packed)


def _backward(ctx, d_out):
    packed, = ctx.saved_tensors
    d_x = d_bias = None
    if ctx.needs_input_grad[0]:
        d_x = d_out @ _dequantized(packed, *ctx.format, ctx.in_features)
    if ctx.has_bias and ctx.needs_input_grad[2]:
        d_bias = d_out.flatten(0, -2).sum(0)
    return d_x, None, d_bias, None, None, None, None


torch.library.register_autograd("imbrex::linear_quantized", _backward, setup_context=_save)
