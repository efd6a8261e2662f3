"""Decode over a paged KV cache, and appending to it."""

import torch

from ._attention import _fake_attention, _mask_of, _results, _score_of
from ._library import native  # noqa: F401  (registers the operators)
from ._rope import fixed_point_frequencies


def paged_decode(q, k_cache, v_cache, block_table, seqlens, *, causal=True, window=None, softcap=None, sinks=None,
                 scale=None, cu_seqlens_q=None, k_scales=None, v_scales=None, total_seqlen_k=0, split_size=0,
                 workspace=None, return_lse=False):
    """Attention of the new tokens of each sequence, q, to all its keys in a paged KV cache.

    q is bf16 or fp16: [batch, heads, head_dim] with one new token for each sequence, [batch, tokens, heads, head_dim]
    with several (speculative decoding), or [tokens, heads, head_dim] with cu_seqlens_q. k_cache and v_cache are
    [pages, rows in a page, kv_heads, head_dim] with any strides, of the type of q, or float8_e4m3fn or int8 with k_scales
    and v_scales: fp32 factors, one number, [kv_heads] or [pages, kv_heads]. A page has a multiple of 16 rows. block_table
    is int32 [batch, blocks]: key i of sequence b is row i % page_size of page block_table[b, i // page_size]. seqlens are
    int32 and count the new tokens, whose keys are already in the cache (paged_append). The kernel reads lengths and block
    table when it runs, so a CUDA graph can be replayed with others.

    causal, window, softcap, sinks, scale and the LSE are those of `attention`. total_seqlen_k, about the number of keys of
    all sequences, lets it choose a faster kernel for large batches. With a split_size, a multiple of 64, the bits of a
    sequence's result do not depend on the rest of the batch.

    workspace, from paged_decode_workspace, saves an allocation and a memset. Give it to launches that follow each other,
    not to concurrent ones.
    """
    arguments = _decode_arguments(q, k_cache, v_cache, block_table, seqlens, causal, window, softcap, sinks, scale,
                                  cu_seqlens_q, k_scales, v_scales, total_seqlen_k, split_size)
    out, lse2 = torch.ops.imbrex.paged_decode(*arguments, workspace)
    if _is_one_token(q, cu_seqlens_q):
        out, lse2 = out.squeeze(1), lse2.squeeze(-1)
    return _results(out, lse2, return_lse)


def paged_decode_workspace(q, k_cache, v_cache, block_table, seqlens, *, causal=True, window=None, softcap=None,
                           cu_seqlens_q=None, split_size=0):
    """A workspace for paged_decode with such arguments: also with other lengths, and without split_size another batch."""
    arguments = _decode_arguments(q, k_cache, v_cache, block_table, seqlens, causal, window, softcap, None, None,
                                  cu_seqlens_q, None, None, 0, split_size)
    size = torch.ops.imbrex.paged_decode_workspace_bytes(*arguments)
    return torch.zeros(size, dtype=torch.uint8, device=q.device)


def paged_append(k, v, k_cache, v_cache, block_table, seqlens, *, cu_seqlens_q=None, q=None, inv_freq=None,
                 style="neox", attention_factor=1.0, k_scales=None, v_scales=None):
    """Writes the keys and values of new tokens into a paged KV cache. Returns q with RoPE, if it is given.

    k and v are [batch, kv_heads, head_dim] with one new token for each sequence, [batch, tokens, kv_heads, head_dim], or
    [tokens, kv_heads, head_dim] with cu_seqlens_q; q is the same with its own heads. Cache, block_table, seqlens and
    scales are those of paged_decode: new token j of n goes to position seqlens[b] - n + j of its sequence. A token
    without a page is skipped on the GPU and an error on the CPU.

    With inv_freq, frequencies in radians for each pair of columns (`rotary_emb.inv_freq` of a Hugging Face model, or its
    fixed_point_inv_freq, which saves the conversion), the first 2 * len(inv_freq) columns of k and q are rotated by the
    position, exactly at any position. style "neox" pairs columns i and i + rotary_dim / 2, "gptj" 2 i and 2 i + 1.
    attention_factor multiplies the rotated columns.

    An 8-bit cache stores value / scale, rounded to the nearest and saturated.
    """
    one_token = _is_one_token(k, cu_seqlens_q)
    if one_token:
        k, v, q = (t if t is None else t.unsqueeze(1) for t in (k, v, q))
    rotated = torch.ops.imbrex.paged_append(
        k, v, k_cache, v_cache, block_table, seqlens, cu_seqlens_q, q, fixed_point_frequencies(inv_freq), style,
        attention_factor, _scales(k_scales, k), _scales(v_scales, k))
    if q is None:
        return None
    return rotated.squeeze(1) if one_token else rotated


def _is_one_token(rows, cu_seqlens_q):
    return rows.dim() == 3 and cu_seqlens_q is None


def _scales(scales, like):
    """A number as a tensor, made on the device without a copy from the host."""
    if scales is None or isinstance(scales, torch.Tensor):
        return scales
    return torch.full((), scales, dtype=torch.float32, device=like.device)


def _decode_arguments(q, k_cache, v_cache, block_table, seqlens, causal, window, softcap, sinks, scale, cu_seqlens_q,
                      k_scales, v_scales, total_seqlen_k, split_size):
    mask, mask_numbers = _mask_of(causal, window)
    score, score_numbers = _score_of(softcap)
    if _is_one_token(q, cu_seqlens_q):
        q = q.unsqueeze(1)
    return (q, k_cache, v_cache, block_table, _scales(k_scales, q), _scales(v_scales, q), scale, sinks, cu_seqlens_q,
            None, seqlens, mask, [], mask_numbers, score, [], score_numbers, total_seqlen_k, split_size)


@torch.library.register_fake("imbrex::paged_decode")
def _(q, k_cache, v_cache, *more):
    return _fake_attention(q, v_cache)


@torch.library.register_fake("imbrex::paged_append")
def _(k, v, k_cache, v_cache, block_table, seqlens, cu_seqlens_q, q, *more):
    return torch.empty(q.shape if q is not None else (0,), dtype=k.dtype, device=k.device)
