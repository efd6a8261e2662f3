"""Rotary position embedding."""

import functools
import math

import torch

from ._library import native  # noqa: F401  (registers the operators)
from ._norm import require_no_gradient


def rope(q, k=None, positions=None, *, theta=10000.0, inv_freq=None, rotary_dim=None, style="neox",
         attention_factor=1.0):
    """Rotates the heads of bf16, fp16 or fp32 tensors [batch, sequence, heads, head_dim] or [tokens, heads, head_dim].

    Returns the rotated q, or (q, k). positions are int32 or int64 [batch, sequence] or [tokens], or of a shape that
    expands to that; an int is the position of the first token of each sequence, None is 0. The first rotary_dim
    columns (all by default) are rotated, pair i by position * theta^(-2 i / rotary_dim) radians. Or by position *
    inv_freq[i] with frequencies [rotary_dim / 2] in radians, such as the `rotary_emb.inv_freq` of a Hugging Face model,
    or their fixed_point_inv_freq, which saves the conversion. attention_factor multiplies the rotated columns. style
    "neox" (Llama) pairs columns i and i + rotary_dim / 2, "gptj" 2 i and 2 i + 1.

    Angles are exact at any position: there is no table of cos and sin. The gradient is the same kernel with opposite
    angles.
    """
    return _each(torch.ops.imbrex.rope, q, k, positions, theta, inv_freq, rotary_dim, style, attention_factor)


def rope_(q, k=None, positions=None, *, theta=10000.0, inv_freq=None, rotary_dim=None, style="neox",
          attention_factor=1.0):
    """rope in place. It has no gradient."""
    require_no_gradient("rope_", q=q, k=k)
    _each(torch.ops.imbrex.rope_, q, k, positions, theta, inv_freq, rotary_dim, style, attention_factor)
    return q if k is None else (q, k)


def fixed_point_inv_freq(inv_freq):
    """RoPE frequencies in radians as the kernels read them: int64, in 2^-64 turns for each position."""
    turns = inv_freq.double() / (2 * math.pi)
    return ((turns - turns.round()) * 2.0**64).to(torch.int64)


def fixed_point_frequencies(inv_freq):
    """Frequencies in radians, or in fixed point already, in fixed point."""
    return inv_freq if inv_freq is None or inv_freq.dtype == torch.int64 else fixed_point_inv_freq(inv_freq)


def _each(op, q, k, positions, theta, inv_freq, rotary_dim, style, attention_factor):
    for name, tensor in (("q", q), ("k", k)):
        if tensor is not None and tensor.dim() < 3:
            raise ValueError(f"{name}: shape {list(tensor.shape)}; [..., sequence, heads, head_dim] is needed")
    if k is not None and k.shape[:-2] != q.shape[:-2]:
        raise ValueError(f"k: shape {list(k.shape)}; its tokens must be those of q, {list(q.shape[:-2])}")
    positions, first = _positions(positions, q)
    turns = _frequencies_of(q, theta, inv_freq, rotary_dim)
    results = [op(x, positions, first, turns, style, attention_factor) for x in (q, k) if x is not None]
    return results[0] if k is None else tuple(results)


def _positions(positions, q):
    """One int32 for each token and 0, or None and the position of the first token."""
    tokens = q.shape[:-2]
    if not isinstance(positions, torch.Tensor):
        first = 0 if positions is None else positions
        if math.prod(tokens[:-1]) == 1:
            return None, first
        positions = torch.arange(first, first + tokens[-1], dtype=torch.int32, device=q.device)
    if positions.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"positions.dtype: {positions.dtype}; must be torch.int32 or torch.int64")
    if positions.dim() > len(tokens) or any(given not in (1, needed) for given, needed in
                                            zip(reversed(positions.shape), reversed(tokens))):
        raise ValueError(f"positions: shape {list(positions.shape)}; must expand to {list(tokens)}, one for each token")
    return positions.to(torch.int32).expand(tokens).contiguous(), 0


def _frequencies_of(q, theta, inv_freq, rotary_dim):
    """Frequencies in fixed point."""
    if inv_freq is not None:
        if rotary_dim not in (None, 2 * inv_freq.numel()):
            raise ValueError(f"rotary_dim: {rotary_dim}; inv_freq has {inv_freq.numel()} pairs of columns")
        return fixed_point_frequencies(inv_freq)
    if rotary_dim is None:
        rotary_dim = q.shape[-1]
    if not theta > 1:
        raise ValueError(f"theta: {theta}; must be greater than 1")
    if rotary_dim < 0 or rotary_dim % 2 != 0 or rotary_dim > q.shape[-1]:
        raise ValueError(f"rotary_dim: {rotary_dim}; must be even and at most head_dim, {q.shape[-1]}")
    # A tensor made while a graph is captured or traced belongs to that graph.
    in_graph = (torch.compiler.is_compiling() or type(q) not in (torch.Tensor, torch.nn.Parameter)
                or (q.is_cuda and torch.cuda.is_current_stream_capturing()))
    return _frequencies(theta, rotary_dim, q.device) if in_graph else _cached_frequencies(theta, rotary_dim, q.device)


def _frequencies(theta, rotary_dim, device):
    pair = torch.arange(0, rotary_dim, 2, dtype=torch.float64, device=device)
    return fixed_point_inv_freq(torch.pow(theta, -pair / rotary_dim))


@functools.cache
def _cached_frequencies(theta, rotary_dim, device):
    with torch.inference_mode(False):  # for callers with gradients, too
        made = _frequencies(theta, rotary_dim, device)
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()  # for callers on other streams, too
    return made


def _fake_rope(x, positions, first_position, inv_freq, style, attention_factor):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _save(ctx, inputs, output):
    _, positions, ctx.first_position, inv_freq, ctx.style, ctx.attention_factor = inputs
    ctx.save_for_backward(positions, inv_freq)


def _backward(ctx, d_out):
    positions, inv_freq = ctx.saved_tensors
    d_x = torch.ops.imbrex.rope(d_out, positions, ctx.first_position, -inv_freq, ctx.style, ctx.attention_factor)
    return d_x, None, None, None, None, None


torch.library.register_fake("imbrex::rope", _fake_rope)
torch.library.register_fake("imbrex::rope_", lambda *arguments: None)
torch.library.register_autograd("imbrex::rope", _backward, setup_context=_save)
