"""Attention by its formula, in the dtype of its arguments."""

import math

import torch


def visible(seqlen_q, seqlen_k, causal, window, device):
    """Which keys a query sees. The last query is aligned with the last key."""
    query = torch.arange(seqlen_q, device=device)[:, None] + seqlen_k - seqlen_q
    key = torch.arange(seqlen_k, device=device)[None, :]
    left, right = window if window is not None else (None, None)
    if causal:
        right = 0
    seen = torch.ones(seqlen_q, seqlen_k, dtype=torch.bool, device=device)
    if left is not None:
        seen &= key >= query - left
    if right is not None:
        seen &= key <= query + right
    return seen


def attention(q, k, v, *, causal=False, window=None, softcap=None, sinks=None, scale=None, keep=None, bias=None):
    """out [batch, sequence, heads, head_dim] and the natural LSE [batch, heads, sequence]."""
    heads, kv_heads = q.shape[2], k.shape[2]
    k, v = (t.repeat_interleave(heads // kv_heads, dim=2) for t in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * (scale if scale is not None else 1 / math.sqrt(q.shape[-1]))
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    seen = visible(q.shape[1], k.shape[1], causal, window, q.device)
    if keep is not None:
        seen = seen & keep
    scores = scores.masked_fill(~seen, -math.inf)
    logits = scores
    if sinks is not None:
        logits = torch.cat([scores, sinks.to(scores)[None, :, None, None].expand(*scores.shape[:3], 1)], dim=-1)
    lse = logits.logsumexp(-1)
    weights = (scores - lse.masked_fill(lse == -math.inf, 0)[..., None]).exp()
    return torch.einsum("bhqk,bkhd->bqhd", weights, v), lse


def relative_error(value, exact):
    return ((value.double() - exact.double()).norm() / exact.double().norm()).item()


def gradients(fn, inputs, out_gradient, lse_gradient=None):
    """Gradients of <out, out_gradient> + <lse, lse_gradient> with respect to the inputs."""
    out, lse = fn(*inputs)
    total = (out * out_gradient.to(out.dtype)).sum()
    if lse_gradient is not None:
        total = total + (lse * lse_gradient.to(lse.dtype)).sum()
    return torch.autograd.grad(total, inputs)
