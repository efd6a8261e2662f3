"""Gated activations."""

import torch

from ._library import native  # noqa: F401  (registers the operators)

_ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu")


def swiglu(gate, up=None, *, activation="silu"):
    """silu(gate) * up of bf16, fp16 or fp32 tensors of one shape, or of one tensor [..., 2 n] (silu_and_mul).

    The fused tensor has the gate in its first half; the halves are not copied. activation may also be "gelu",
    "gelu_tanh" or "relu". Arithmetic is in fp32 and the result is rounded once. Any strides are allowed.

    The gradient is computed by PyTorch operators in fp32; torch.compile fuses them.
    """
    if activation not in _ACTIVATIONS:
        raise ValueError(f"activation: {activation!r}; one of {', '.join(_ACTIVATIONS)} is allowed")
    if up is None:
        if gate.dim() == 0 or gate.shape[-1] % 2 != 0:
            raise ValueError(f"gate: shape {list(gate.shape)}; without up it is [..., 2 n], gate and then up")
        gate, up = gate.chunk(2, dim=-1)
    return torch.ops.imbrex.swiglu(gate, up, activation)


@torch.library.register_fake("imbrex::swiglu")
def _(gate, up, activation):
    return torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)


def _activation_and_gradient(x, activation, d_out):
    aten = torch.ops.aten
    if activation == "silu":
        return aten.silu(x), aten.silu_backward(d_out, x)
    if activation == "relu":
        return x.relu(), aten.threshold_backward(d_out, x, 0)
    approximate = "tanh" if activation == "gelu_tanh" else "none"
    return aten.gelu(x, approximate=approximate), aten.gelu_backward(d_out, x, approximate=approximate)


def _save(ctx, inputs, output):
    gate, up, ctx.activation = inputs
    ctx.save_for_backward(gate, up)


def _backward(ctx, d_out):
    gate, up = ctx.saved_tensors
    d_out = d_out.float()
    activated, d_gate = _activation_and_gradient(gate.float(), ctx.activation, d_out * up.float())
    return d_gate.to(gate.dtype), (d_out * activated).to(up.dtype), None


torch.library.register_autograd("imbrex::swiglu", _backward, setup_context=_save)
