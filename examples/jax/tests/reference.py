"""Attention and its gradient in float64, by the formulas."""

import numpy as np


def _scores(q, k, causal, window, softcap, scale):
    """Scores, -inf where a query does not see a key, and the derivative of the softcap."""
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) * scale
    derivative = np.ones_like(scores)
    if softcap is not None:
        inside = np.tanh(scores / softcap)
        scores, derivative = softcap * inside, 1 - inside**2
    own = np.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1]
    key = np.arange(k.shape[1])[None]
    left, right = (None, None) if window is None else window
    seen = np.ones((q.shape[1], k.shape[1]), bool)
    seen &= (key <= own) | (not causal)
    if left is not None:
        seen &= key >= own - left
    if right is not None:
        seen &= key <= own + right
    return np.where(seen, scores, -np.inf), derivative


def _probabilities(scores):
    highest = scores.max(-1, keepdims=True, initial=-np.inf)
    highest = np.where(np.isfinite(highest), highest, 0)
    weights = np.exp(scores - highest)
    sums = weights.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (highest + np.log(sums))[..., 0]
    return weights / np.where(sums == 0, 1, sums), lse


def _of_every_head(array, heads):
    return np.repeat(array, heads // array.shape[2], axis=2)


def attention(q, k, v, d_out, d_lse, *, causal=False, window=None, softcap=None, scale=None):
    """O, the LSE, and the gradients of Q, K and V from those of O and the LSE."""
    q, k, v, d_out, d_lse = (np.asarray(array, np.float64) for array in (q, k, v, d_out, d_lse))
    heads, kv_heads = q.shape[2], k.shape[2]
    all_k, all_v = _of_every_head(k, heads), _of_every_head(v, heads)
    scale = 1 / np.sqrt(q.shape[-1]) if scale is None else scale
    scores, derivative = _scores(q, all_k, causal, window, softcap, scale)
    p, lse = _probabilities(scores)
    out = np.einsum("bhqk,bkhd->bqhd", p, all_v)
    d_p = np.einsum("bqhd,bkhd->bhqk", d_out, all_v)
    delta = (d_p * p).sum(-1, keepdims=True)
    d_scores = p * (d_p - delta + d_lse[..., None]) * derivative * scale

    def of_kv_heads(gradient):
        return gradient.reshape(*gradient.shape[:2], kv_heads, -1, gradient.shape[-1]).sum(3)

    d_q = np.einsum("bhqk,bkhd->bqhd", d_scores, all_k)
    d_k = of_kv_heads(np.einsum("bhqk,bqhd->bkhd", d_scores, q))
    d_v = of_kv_heads(np.einsum("bhqk,bqhd->bkhd", p, d_out))
    return out, lse, d_q, d_k, d_v
