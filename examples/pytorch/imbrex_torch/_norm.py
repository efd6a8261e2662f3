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


def rms_norm_(x, weight, eps=1e-6, *, residual=None):
    """rms_norm in place (fused_add_rms_norm): x becomes the normed tensor, and a residual x + residual.

    Returns x, or (x, residual). It has no gradient.
    """
    require_no_gradient("rms_norm_", x=x, weight=weight, residual=residual)
    torch.ops.imbrex.rms_norm_(x, residual, weight, eps)
    return x if residual is None else (x, residual)


def require_no_gradient(name, **tensors):
    """Raises RuntimeError if an operator that overwrites its arguments would have to record one."""
    for argument, tensor in tensors.items():
        if torch.is_grad_enabled() and tensor is not None and tensor.requires_grad:
            raise RuntimeError(f"{argument}: it requires a gradient, and {name} overwrites its arguments; use "
                               f"{name[:-1]}, or torch.no_grad()")


@torch.library.register_fake("imbrex::rms_norm")
def _(x, weight, eps):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


@torch.library.register_fake("imbrex::add_rms_norm")
def _(x, residual, weight, eps):
    return (torch.empty(x.shape, dtype=x.dtype, device=x.device),
            torch.empty(x.shape, dtype=x.dtype, device=x.device))


@torch.library.register_fake("imbrex::rms_norm_")
def _(x, residual, weight, eps):
    return None


def _rms_norm_gradients(d_out, x, weight, eps, needs_x, needs_weight):
    """Gradients of the normalised rows and of the weight; None where none is needed."""
    d_out, rows = d_out.float(), x.float()
    rstd = torch.rsqrt(rows.square().mean(-1, keepdim=True) + eps)
    normed = rows * rstd
    d_x = d_weight = None
    if needs_x:
        d_normed = d_out * weight.float()
        d_x = (d_normed - normed * (d_normed * normed).mean(-1, keepdim=True)) * rstd
    if needs_weight:
        d_weight = (d_out * normed).reshape(-1, x.shape[-1]).sum(0).to(weight.dtype)
    return d_x, d_weight


def _save_rms_norm(ctx, inputs, output):
    x, weight, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


def _rms_norm_backward(ctx, d_out):
    x, weight = ctx.saved_tensors
    d_x, d_weight = _rms_norm_gradients(d_out, x, weight, ctx.eps, *ctx.needs_input_grad[:2])
    return d_x if d_x is None else d_x.to(x.dtype), d_weight, None


def _save_add_rms_norm(ctx, inputs, output):
    _, _, weight, ctx.eps = inputs
    ctx.save_for_backward(output[1], weight)
    ctx.set_materialize_grads(False)


def _add_rms_norm_backward(ctx, d_out, d_sum):
    added, weight = ctx.saved_tensors
    needs_x, needs_residual, needs_weight, _ = ctx.needs_input_grad
    d_added, d_weight = d_sum, None
    if d_out is not None:
        d_rows, d_weight = _rms_norm_gradients(d_out, added, weight, ctx.eps, needs_x or needs_residual, needs_weight)
        if d_rows is not None:
            d_added = (d_rows if d_sum is None else d_rows + d_sum).to(added.dtype)
    return d_added if needs_x else None, d_added if needs_residual else None, d_weight, None


torch.library.register_autograd("imbrex::rms_norm", _rms_norm_backward, setup_context=_save_rms_norm)
torch.library.register_autograd("imbrex::add_rms_norm", _add_rms_norm_backward, setup_context=_save_add_rms_norm)
