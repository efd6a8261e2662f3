"""Normalisation of rows."""

import torch

from ._library import native  # noqa: F401  (registers the operators)


def rms_norm(x, weight, eps=1e-6, *, residual=None):
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension of a bf16, fp16 or fp32 tensor [..., columns].

    With a residual the norm is that of x + residual, rounded to the dtype of x. The result is (normed, x + residual).
    The weight [columns] may have another of these dtypes. Sums are in fp32 and the result is rounded once. Any strides
    are allowed; a tensor is copied only if its last dimension is strided or its leading ones do not collapse to two.

    The gradient is computed by PyTorch operators in fp32; torch.compile fuses them.
    """
    if residual is None:
        return torch.ops.imbrex.rms_norm(x, weight, eps)
    return torch.ops.imbrex.add_rms_norm(x, residual, weight, eps)


def layer_norm(x, weight=None, bias=None, eps=1e-5, *, residual=None):
    """(x - mean(x)) / sqrt(var(x) + eps) * weight + bias, with the rest as in rms_norm. The variance is biased."""
    if residual is None:
        return torch.ops.imbrex.layer_norm(x, weight, bias, eps)
    return torch.ops.imbrex.add_layer_norm(x, residual, weight, bias, eps)


def rms_norm_(x, weight, eps=1e-6, *, residual=None):
    """rms_norm in place (fused_add_rms_norm): x becomes the normed tensor, and a residual x + residual.

    Returns x, or (x, residual). It has no gradient.
    """
    require_no_gradient("rms_norm_", x=x, weight=weight, residual=residual)
    torch.ops.imbrex.rms_norm_(x, residual, weight, eps)
    return x if residual is None else (x, residual)


def layer_norm_(x, weight=None, bias=None, eps=1e-5, *, residual=None):
    """layer_norm in place, as rms_norm_."""
    require_no_gradient("layer_norm_", x=x, weight=weight, bias=bias, residual=residual)
    torch.ops.imbrex.layer_norm_(x, residual, weight, bias, eps)
    return x if residual is None else (x, residual)


def require_no_gradient(name, **tensors):
    """Raises RuntimeError if an operator that overwrites its arguments would have to record one."""
    for argument, tensor in tensors.items():
        if torch.is_grad_enabled() and tensor is not None and tensor.requires_grad:
            raise RuntimeError(f"{argument}: it requires a gradient, and {name} overwrites its arguments; use "
                               f"{name[:-1]}, or torch.no_grad()")


def _gradients(d_out, x, weight, eps, centred):
    """Of the rows, and of weight and bias for each row apart. In fp32."""
    d_out, rows = d_out.float(), x.float()
    if centred:
        rows = rows - rows.mean(-1, keepdim=True)
    rstd = torch.rsqrt(rows.square().mean(-1, keepdim=True) + eps)
    normed = rows * rstd
    d_normed = d_out if weight is None else d_out * weight.float()
    d_rows = d_normed - normed * (d_normed * normed).mean(-1, keepdim=True)
    if centred:
        d_rows = d_rows - d_normed.mean(-1, keepdim=True)
    return d_rows * rstd, (d_out * normed, d_out)


def _register(name, centred):
    """Fake implementations and gradients of a norm. Its column values are (weight,) or (weight, bias)."""

    def like(x):
        return torch.empty(x.shape, dtype=x.dtype, device=x.device)

    def save(ctx, inputs, output):
        x, *column_values, ctx.eps = inputs
        ctx.save_for_backward(x, *column_values)

    def save_sum(ctx, inputs, output):
        _, _, *column_values, ctx.eps = inputs
        ctx.save_for_backward(output[1], *column_values)
        ctx.set_materialize_grads(False)

    def gradients(ctx, d_out):
        x, *column_values = ctx.saved_tensors
        d_rows, d_elements = _gradients(d_out, x, column_values[0], ctx.eps, centred)
        needed = ctx.needs_input_grad[-1 - len(column_values):-1]
        return d_rows, [each.reshape(-1, x.shape[-1]).sum(0).to(values.dtype) if needs else None
                        for each, values, needs in zip(d_elements, column_values, needed)]

    def backward(ctx, d_out):
        d_rows, d_values = gradients(ctx, d_out)
        return d_rows.to(d_out.dtype), *d_values, None

    def backward_sum(ctx, d_out, d_sum):
        if d_out is None:
            return d_sum, d_sum, *[None] * len(ctx.saved_tensors[1:]), None
        d_rows, d_values = gradients(ctx, d_out)
        d_rows = (d_rows if d_sum is None else d_rows + d_sum).to(d_out.dtype)
        return d_rows, d_rows, *d_values, None

    torch.library.register_fake(f"imbrex::{name}", lambda x, *more: like(x))
    torch.library.register_fake(f"imbrex::add_{name}", lambda x, *more: (like(x), like(x)))
    torch.library.register_fake(f"imbrex::{name}_", lambda x, *more: None)
    torch.library.register_autograd(f"imbrex::{name}", backward, setup_context=save)
    torch.library.register_autograd(f"imbrex::add_{name}", backward_sum, setup_context=save_sum)


_register("rms_norm", centred=False)
_register("layer_norm", centred=True)
