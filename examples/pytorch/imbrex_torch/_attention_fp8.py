"""Attention of 8-bit tensors, and their quantisation."""

import torch

from ._attention import _fake_attention, _mask_of, _results, _score_of
from ._library import native  # noqa: F401  (registers the operators)
from ._paged_kv import _scales
from ._rope import fixed_point_frequencies


def attention_fp8(q, k, v, *, q_scale=None, k_scale=None, v_scale=None, causal=False, window=None, softcap=None,
                  sinks=None, scale=None, seqused_k=None, cu_seqlens_q=None, cu_seqlens_k=None,
                  accumulation="promoted", out_dtype=torch.bfloat16, out_scale=None, return_lse=False):
    """attention of float8_e4m3fn tensors [batch, sequence, heads, head_dim], without a gradient.

    With cu_seqlens_q and cu_seqlens_k the tensors are [tokens, heads, head_dim]. A scale is the factor of the elements
    (descale factor), fp32: one number, [batch, heads], or for each block of rows, 64 of q and 128 of k and v,
    [batch, heads, blocks]; then all three are. The heads may be fewer: consecutive ones share a scale. quantize_fp8 makes
    tensors and scales; in a varlen batch they are per sequence.

    accumulation "promoted" adds the products with each tile of keys in fp32, "fast" leaves the sum to the tensor cores,
    which keep about 14 bits: its error grows with the number of keys. out_dtype is torch.bfloat16, torch.float16, or
    torch.float8_e4m3fn with elements out / out_scale. The other arguments are those of `attention`.
    """
    mask, mask_numbers = _mask_of(causal, window)
    score, score_numbers = _score_of(softcap)
    out, lse2 = torch.ops.imbrex.attention_fp8(
        q, k, v, *(_scales(one, q) for one in (q_scale, k_scale, v_scale, out_scale)), scale, sinks, cu_seqlens_q,
        cu_seqlens_k, seqused_k, mask, [], mask_numbers, score, [], score_numbers, accumulation, out_dtype)
    return _results(out, lse2, return_lse)


def quantize_fp8(x, *, granularity="tensor", scale=None, seqused=None, cu_seqlens=None, inv_freq=None, style="neox",
                 attention_factor=1.0, positions=None, hadamard_seed=None):
    """Quantises bf16 or fp16 Q, K or V [batch, sequence, heads, head_dim] to float8_e4m3fn. Returns it and its scale.

    granularity: one scale for the "tensor", for each batch entry and "head", or for each block of this number of rows, a
    multiple of 64; attention_fp8 takes blocks of 64 rows of q and 128 of k and v. The scale is the largest magnitude /
    448, unless it is given: then elements are x / scale, saturated. seqused (int32, rows of each batch entry) and
    cu_seqlens (x is [tokens, heads, head_dim], scales are per sequence) say which rows count.

    Before, optionally: RoPE with inv_freq, style and attention_factor as in paged_append, at int32 positions
    [batch, sequence] or, by default, from 0 on in each sequence; and a rotation of head_dim by random signs and a Hadamard
    matrix, which spreads outliers over the columns and leaves q k^T unchanged if q and k have the same hadamard_seed.
    """
    if granularity not in ("tensor", "head") and not (isinstance(granularity, int) and granularity > 0):
        raise ValueError(f"granularity: {granularity!r}; must be 'tensor', 'head' or a number of rows")
    block_rows = granularity if isinstance(granularity, int) else 0
    return torch.ops.imbrex.quantize_fp8(
        x, _scales(scale, x), granularity == "head", block_rows, seqused, cu_seqlens, fixed_point_frequencies(inv_freq),
        style, attention_factor, positions, hadamard_seed)


@torch.library.register_fake("imbrex::attention_fp8")
def _(q, k, v, *more):
    return _fake_attention(q, v, more[-1])


@torch.library.register_fake("imbrex::quantize_fp8")
def _(x, scale, per_head, block_rows, seqused, cu_seqlens, *more):
    out = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
    if scale is not None:
        return out, torch.empty(scale.shape, dtype=torch.float32, device=x.device)
    sizes = (x.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1, x.shape[-2])
    if block_rows:
        sizes += ((x.shape[-3] + block_rows - 1) // block_rows,)
    return out, torch.empty(sizes if per_head or block_rows else (), dtype=torch.float32, device=x.device)
