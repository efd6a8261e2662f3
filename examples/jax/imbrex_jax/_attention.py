"""Attention with a gradient."""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import _library  # noqa: F401  (registers the handlers)

_FULL, _CAUSAL, _WINDOW = range(3)


class _Options(NamedTuple):
    """The attributes of the handlers."""

    scale: float
    softcap: float  # 0: none
    mask: int
    window_left: int  # -1: without a limit
    window_right: int
    deterministic: bool

    def attributes(self):
        return {"scale": np.float32(self.scale), "softcap": np.float32(self.softcap), "mask": np.int32(self.mask),
                "window_left": np.int32(self.window_left), "window_right": np.int32(self.window_right),
                "deterministic": np.bool_(self.deterministic)}


def attention(q, k, v, *, causal=False, window=None, softcap=None, scale=None, deterministic=False, return_lse=False):
    """softmax(scale * q k^T) v of bfloat16 or float16 arrays [batch, sequence, heads, head_dim].

    Heads of q are a multiple of those of k and v (GQA); v may have another head_dim. causal aligns the last query with
    the last key. window is the number of keys that a query sees before (and, unless causal, after) its own, or (left,
    right). softcap limits scores by softcap * tanh(score / softcap). deterministic makes the gradient of q the same bits
    in every run. With return_lse also the LSE [batch, heads, sequence] in natural logarithms. Both results have a
    gradient. The arguments after v are Python values, not arrays.
    """
    _require_arrays(q, k, v)
    mask, left, right = _mask_of(causal, window)
    if softcap is not None and not softcap > 0:
        raise ValueError(f"softcap: {softcap}; a positive number is needed")
    if scale is not None and not scale > 0:
        raise ValueError(f"scale: {scale}; a positive number is needed")
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    options = _Options(float(scale), float(softcap or 0), mask, left, right, bool(deterministic))
    out, lse2 = _attention(q, k, v, options)
    return (out, lse2 * math.log(2)) if return_lse else out


def _mask_of(causal, window):
    """Kind and sides of the mask."""
    if window is None:
        return (_CAUSAL if causal else _FULL), -1, -1
    sides = (window, window) if isinstance(window, int) else window
    left, right = (-1 if side is None else side for side in sides)
    if left < -1 or right < -1:
        raise ValueError(f"window: {window}; sides are numbers of keys, or None without a limit")
    return _WINDOW, left, 0 if causal else right


def _require_arrays(q, k, v):
    for name, array in (("q", q), ("k", k), ("v", v)):
        if array.ndim != 4:
            raise ValueError(f"{name}.shape: {array.shape}; [batch, sequence, heads, head_dim] is needed")
        if array.dtype not in (jnp.bfloat16, jnp.float16) or array.dtype != q.dtype:
            raise TypeError(f"{name}.dtype: {array.dtype}; must be bfloat16 or float16, that of q")
    for name, array in (("k", k), ("v", v)):
        if array.shape[0] != q.shape[0]:
            raise ValueError(f"{name}.shape[0]: {array.shape[0]}; must be {q.shape[0]}, the batch size of q")
        if array.shape[1:3] != k.shape[1:3]:
            raise ValueError(f"{name}.shape: {array.shape}; k has {k.shape[1]} rows of {k.shape[2]} heads, and so must it")
    if k.shape[2] == 0 or q.shape[2] % k.shape[2] != 0:
        raise ValueError(f"k.shape[2]: {k.shape[2]} heads; the {q.shape[2]} heads of q must be a multiple of that")
    if k.shape[3] != q.shape[3]:
        raise ValueError(f"k.shape[3]: {k.shape[3]}; must be {q.shape[3]}, the head_dim of q")
    for name, array in (("q", q), ("v", v)):
        if array.shape[3] % 16 != 0 or not 16 <= array.shape[3] <= 256:
            raise ValueError(f"{name}.shape[3]: {array.shape[3]}; head_dim is a multiple of 16 from 16 to 256")


def _call(name, results, operands, options):
    # Under vmap all operands get a leading dimension, which the handler joins with the batch.
    return jax.ffi.ffi_call(name, results, vmap_method="broadcast_all")(*operands, **options.attributes())


def _forward(q, k, v, options):
    out = jax.ShapeDtypeStruct((*q.shape[:3], v.shape[3]), q.dtype)
    lse2 = jax.ShapeDtypeStruct((q.shape[0], q.shape[2], q.shape[1]), jnp.float32)
    if q.size == 0 or k.size == 0:  # XLA does not hand over the shapes of empty arrays
        return jnp.zeros(out.shape, out.dtype), jnp.full(lse2.shape, -jnp.inf, lse2.dtype)
    return _call("imbrex_attention_forward", (out, lse2), (q, k, v), options)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _attention(q, k, v, options):
    return tuple(_forward(q, k, v, options))


def _attention_with_residuals(q, k, v, options):
    out, lse2 = _forward(q, k, v, options)
    return (out, lse2), (q, k, v, out, lse2)


def _attention_gradients(options, residuals, gradients):
    q, k, v, out, lse2 = residuals
    d_out, d_lse2 = gradients
    if q.size == 0 or k.size == 0:
        return jnp.zeros_like(q), jnp.zeros_like(k), jnp.zeros_like(v)
    # delta = rowsum(dO * O) - d(loss)/d(LSE): a gradient of the LSE acts as if delta were smaller.
    products = d_out.astype(jnp.float32) * out.astype(jnp.float32)
    delta = jnp.swapaxes(products.sum(-1), 1, 2) - d_lse2 / math.log(2)
    results = tuple(jax.ShapeDtypeStruct(array.shape, array.dtype) for array in (q, k, v))
    return tuple(_call("imbrex_attention_backward", results, (d_out, delta, q, k, v, lse2), options))


_attention.defvjp(_attention_with_residuals, _attention_gradients)
