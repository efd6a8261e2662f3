"""Attention and its variants."""

import math

import torch

from . import _compiler
from ._library import native  # noqa: F401  (registers the operators)

_UNBOUNDED = 1 << 30


def _mask_of(causal, window):
    """Name and numbers of the library's mask."""
    if window is None:
        return ("causal_mask", []) if causal else ("full_mask", [])
    left, right = (window, 0 if causal else window) if isinstance(window, int) else window
    left, right = (_UNBOUNDED if side is None or side == -1 else side for side in (left, right))
    if left < 0 or right < 0:
        raise ValueError(f"window: {window}; sides are numbers of keys, or None without a limit")
    if causal:
        right = 0
    return "window_mask:ii", [left, right]


def _score_of(softcap):
    if softcap is None:
        return "score_mod::identity", []
    if not softcap > 0:
        raise ValueError(f"softcap: {softcap}; a positive number is needed")
    return "score_mod::softcap:f", [float(softcap)]


def _results(out, lse2, return_lse):
    return (out, lse2 * math.log(2.0)) if return_lse else out


def attention(q, k, v, *, causal=False, window=None, softcap=None, sinks=None, scale=None, seqused_k=None,
              deterministic=False, return_lse=False):
    """softmax(scale * q k^T) v of bf16 or fp16 tensors [batch, sequence, heads, head_dim], with a gradient.

    Heads of q are a multiple of those of k and v (GQA). causal aligns the last query with the last key.
    window is the number of keys that a query sees before (and, unless causal, after) its own, or (left, right).
    softcap limits scores by softcap * tanh(score / softcap). sinks are fp32 logits, one per head. seqused_k are int32
    numbers of keys, one per batch entry. deterministic makes the gradient of q the same bits in every run. The LSE
    [batch, heads, sequence] is in natural logarithms and has a gradient, too.
    """
    mask, mask_numbers = _mask_of(causal, window)
    score, score_numbers = _score_of(softcap)
    out, lse2 = torch.ops.imbrex.attention_forward(
        q, k, v, scale, sinks, None, None, seqused_k, mask, [], mask_numbers, score, [], score_numbers, deterministic)
    return _results(out, lse2, return_lse)


def attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, *, causal=False, window=None, softcap=None, sinks=None,
                     scale=None, deterministic=False, return_lse=False):
    """The same for sequences of different lengths, concatenated: [tokens, heads, head_dim].

    cu_seqlens are int32: sequence i has the tokens from cu_seqlens[i] up to, not including, cu_seqlens[i + 1]. The LSE is
    [heads, tokens].
    """
    mask, mask_numbers = _mask_of(causal, window)
    score, score_numbers = _score_of(softcap)
    out, lse2 = torch.ops.imbrex.attention_forward(
        q, k, v, scale, sinks, cu_seqlens_q, cu_seqlens_k, None, mask, [], mask_numbers, score, [], score_numbers,
        deterministic)
    return _results(out, lse2, return_lse)


def _fake_attention(q, v, dtype=None):
    out = torch.empty((*q.shape[:-1], v.shape[-1]), dtype=dtype or q.dtype, device=q.device)
    rows = (q.shape[0], q.shape[2], q.shape[1]) if q.dim() == 4 else (q.shape[1], q.shape[0])
    return out, torch.empty(rows, dtype=torch.float32, device=q.device)


@torch.library.register_fake("imbrex::attention_forward")
def _(q, k, v, *more):
    return _fake_attention(q, v)


@torch.library.register_fake("imbrex::attention_backward")
def _(d_out, delta, q, k, v, out, lse2, scale, sinks, cu_seqlens_q, cu_seqlens_k, seqused_k, mask, mask_tensors,
      mask_numbers, score, score_tensors, *more):
    def like(t):
        return torch.empty(t.shape, dtype=t.dtype, device=t.device)

    d_sinks = like(sinks) if sinks is not None else torch.empty((0,), dtype=torch.float32, device=q.device)
    d_score = [torch.empty(t.shape, dtype=torch.float32, device=t.device) for t in score_tensors]
    return like(q), like(k), like(v), d_sinks, d_score


class attention_with:
    """Attention with a mask or score_mod written in C++, compiled when it is first called and then cached.

        documents = attention_with(mask_source='''
            struct mask : imbrex::mask_base {
                const int* document;  // of each token
                IMBREX_FN bool keep(const attention_extents&, int query, int key) const {
                    return document[query] == document[key];
                }
            };''', members={"document": torch.int32})
        out = documents(q, k, v, document=ids)

    A source defines `struct mask` or `struct score`, as docs/attention.md describes them. Its members are given by name in
    their order: a dtype for a pointer to the elements of a contiguous tensor, int or float for a number. A score's member
    "d_<name>" of type torch.float32 after <name> is a pointer to its gradient, which the kernel adds to; it is not passed,
    and null in the forward pass.
    """

    def __init__(self, mask_source=None, score_source=None, *, members=None, mask_members=None, score_members=None):
        if mask_source is None and score_source is None:
            raise ValueError("mask_source, score_source: None; at least one is needed")
        if members is not None:
            if mask_source is not None and score_source is not None:
                raise ValueError("members: of a mask or of a score? Use mask_members and score_members")
            mask_members, score_members = (members, None) if mask_source is not None else (None, members)
        self._mask = _Functor(mask_source, "mask", mask_members or {})
        self._score = _Functor(score_source, "score", score_members or {})

    def __call__(self, q, k, v, *, scale=None, sinks=None, cu_seqlens_q=None, cu_seqlens_k=None, seqused_k=None,
                 deterministic=False, return_lse=False, **members):
        mask, mask_tensors, mask_numbers = self._mask.arguments(members)
        score, score_tensors, score_numbers = self._score.arguments(members)
        unknown = members.keys() - self._mask.members.keys() - self._score.members.keys()
        if unknown:
            raise TypeError(f"{', '.join(sorted(unknown))}: no member of the mask or score")
        out, lse2 = torch.ops.imbrex.attention_forward(
            q, k, v, scale, sinks, cu_seqlens_q, cu_seqlens_k, seqused_k, mask, mask_tensors, mask_numbers, score,
            score_tensors, score_numbers, deterministic)
        return _results(out, lse2, return_lse)


class _Functor:
    """A mask or score_mod of the user, or the library's neutral one."""

    def __init__(self, source, kind, members):
        self.members = members
        if source is None:
            self.name = "full_mask" if kind == "mask" else "score_mod::identity"
            return
        self.name = _compiler.add_functor(source, kind)
        kinds = ""
        previous = None
        for name, type_ in members.items():
            if isinstance(type_, torch.dtype):
                kinds += "g" if name == f"d_{previous}" else "t"
            elif type_ in (int, float):
                kinds += {int: "i", float: "f"}[type_]
            else:
                raise TypeError(f"members[{name!r}]: {type_}; a torch.dtype, int or float is allowed")
            previous = name
        self.name += f":{kinds}" if kinds else ""

    def arguments(self, given):
        """The name for the operator, tensors and numbers."""
        tensors, numbers, previous = [], [], None
        for name, type_ in self.members.items():
            is_gradient = isinstance(type_, torch.dtype) and name == f"d_{previous}"
            previous = name
            if is_gradient:
                continue
            if name not in given:
                raise TypeError(f"{name}: not given; it is a member of the mask or score")
            value = given[name]
            if not isinstance(type_, torch.dtype):
                numbers.append(float(value))
                continue
            if not isinstance(value, torch.Tensor) or value.dtype != type_:
                raise TypeError(f"{name}: {getattr(value, 'dtype', type(value))}; a tensor of {type_} is needed")
            tensors.append(value)
        return self.name, tensors, numbers
