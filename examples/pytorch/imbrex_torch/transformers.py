"""Attention of Imbrex in Hugging Face models.

    import imbrex_torch.transformers
    imbrex_torch.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16, attn_implementation="imbrex")

The models' causal, sliding window, padding and packed-sequence masks become arguments of the kernel, and no mask of
[query, key] elements is made:

    causal, or none                     no mask
    sliding window                      a window of keys
    padding, packed sequences, static   the first key and the end of each query's keys, int32 [batch, 1, query, 2]
    cache in its prefill
    anything else                       booleans [batch, 1 or head, query, key]

Softcap, scale, GQA, attention sinks and gradients are those of imbrex_torch.attention. q, k and v are bf16 or fp16.
There is no attention dropout, and attention weights are not returned.
"""

import dataclasses

import torch
from transformers import AttentionInterface, AttentionMaskInterface, masking_utils
from transformers.integrations.flash_attention import get_target_dtype
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.utils import logging

from ._attention import _UNBOUNDED, _mask_of, _score_of

_logger = logging.get_logger(__name__)


def register(name="imbrex"):
    """Makes `attn_implementation=name` available to all models."""
    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, attention_mask)


@dataclasses.dataclass(frozen=True)
class Window:
    """At most `left` keys before and `right` after a query's own; the last query's own key is the last one."""

    left: int
    right: int


def attention_forward(module, query, key, value, attention_mask, dropout=0.0, scaling=None, sliding_window=None,
                      softcap=None, is_causal=None, s_aux=None, position_bias=None, cu_seq_lens_q=None,
                      cu_seq_lens_k=None, **kwargs):
    """The attention function of a model.

    Tensors are [batch, head, sequence, head_dim], the result is [batch, sequence, head, head_dim]. The mask is a result of
    `attention_mask` below, or a tensor [batch, 1 or head, query, key] from the user.
    """
    if isinstance(attention_mask, torch.Tensor) and attention_mask.is_floating_point():
        if softcap is not None or s_aux is not None:
            raise ValueError(f"attention_mask.dtype: {attention_mask.dtype}; must be torch.bool, with softcap or sinks")
        _logger.warning_once("attention_mask: an additive mask; PyTorch's scaled_dot_product_attention is used. Pass a "
                             "boolean mask to use the attention of imbrex.")
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling,
                                      position_bias=position_bias, **kwargs)
    if dropout:
        raise ValueError(f"dropout: {dropout}; the attention of imbrex has none, set attention_dropout to 0")
    if position_bias is not None:
        raise ValueError("position_bias: the attention of imbrex has none, use attn_implementation=\"sdpa\"")
    if kwargs.get("output_attentions", False):
        _logger.warning_once("The attention of imbrex returns no weights; use attn_implementation=\"eager\" for them.")
    dtype = get_target_dtype(query, module)  # for fp32 activations under autocast or between 16-bit layers
    q, k, v = (t.transpose(1, 2) if dtype is None else t.transpose(1, 2).to(dtype) for t in (query, key, value))
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    score, score_numbers = _score_of(softcap)
    sinks = None if s_aux is None else s_aux.float()

    def attend(q, k, v, cu_seqlens_q, cu_seqlens_k, mask, mask_tensors, mask_numbers):
        return torch.ops.imbrex.attention_forward(
            q, k, v, scaling, sinks, cu_seqlens_q, cu_seqlens_k, None, mask, mask_tensors, mask_numbers, score, [],
            score_numbers, False)[0]

    if cu_seq_lens_q is not None and cu_seq_lens_k is not None:
        mask, numbers = _mask_of(causal, _window(causal, sliding_window))
        cu_seqlens = [one.to(torch.int32) for one in (cu_seq_lens_q, cu_seq_lens_k)]
        out = attend(*(t.reshape(-1, *t.shape[2:]) for t in (q, k, v)), *cu_seqlens, mask, [], numbers)
        return out.view(*q.shape[:2], *out.shape[1:]), None
    return attend(q, k, v, None, None, *_mask_arguments(attention_mask, k.shape[1], causal, sliding_window)), None


def _window(causal, sliding_window):
    """The window that a model names by its size."""
    if sliding_window is None:
        return None
    return sliding_window - 1, 0 if causal else sliding_window - 1


def _mask_arguments(mask, kv_length, causal, sliding_window):
    """Name, tensors and numbers of the kernel's mask."""
    if mask is None:
        window = _window(causal, sliding_window) if sliding_window is not None and sliding_window < kv_length else None
        name, numbers = _mask_of(causal, window)
        return name, [], numbers
    if isinstance(mask, Window):
        name, numbers = _mask_of(False, (mask.left, mask.right))
        return name, [], numbers
    if mask.dtype == torch.int32:
        return "key_range_mask:t", [mask], []
    mask = mask[..., :kv_length]
    for dim in (0, 1):
        if mask.stride(dim) == 0:
            mask = mask.narrow(dim, 0, 1)
    mask = mask.contiguous()
    strides = [mask.stride(dim) if mask.shape[dim] > 1 else 0 for dim in (0, 1)]
    return "dense_mask:tlll", [mask], [*strides, mask.stride(2)]


@torch.compiler.disable(reason="it looks at values of the mask, so that the kernels need no dense one")
def attention_mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0,
                   mask_function=masking_utils.causal_mask_function, attention_mask=None, allow_is_causal_skip=True,
                   allow_is_bidirectional_skip=False, device="cpu", **kwargs):
    """The mask function of a model. The result is one of those in the module's docstring."""
    pattern = _pattern_of(mask_function)
    skip = pattern is not None and (allow_is_causal_skip if pattern.right == 0 else allow_is_bidirectional_skip)
    padding = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    padding = None if padding is None else padding[:, kv_offset:kv_offset + kv_length]
    if skip or (pattern is not None and pattern.documents is not None):
        padded, one_range = _padding_kind(padding)
        if one_range:
            aligned = not isinstance(q_offset, torch.Tensor) and q_offset + q_length == kv_offset + kv_length
            if aligned and not padded and _is_one_document(pattern.documents):
                return None if pattern.left >= kv_length - 1 else Window(pattern.left, pattern.right)
            own = torch.arange(q_length, device=device) + (q_offset - kv_offset)
            return _key_ranges(pattern, own, batch_size, kv_length, padding if padded else None)
    return masking_utils.sdpa_mask(
        batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset,
        mask_function=mask_function, attention_mask=attention_mask, allow_is_causal_skip=False,
        allow_is_bidirectional_skip=False, device=device, **kwargs)


@dataclasses.dataclass
class _Pattern:
    """The intersection of mask functions that give each query one range of keys."""

    left: int = _UNBOUNDED
    right: int = _UNBOUNDED
    documents: torch.Tensor | None = None  # the document of each token [batch, query]


def _pattern_of(mask_function):
    """The pattern of a mask function made by transformers, or None. They are closures, known by their names."""
    pattern = _Pattern()
    waiting = [mask_function]
    while waiting:
        one = waiting.pop()
        if one is masking_utils.causal_mask_function:
            pattern.right = 0
            continue
        if one is masking_utils.bidirectional_mask_function:
            continue
        name = getattr(one, "__qualname__", "").split(".<locals>.")
        members = dict(zip(one.__code__.co_freevars, (cell.cell_contents for cell in one.__closure__ or ())))
        if name == ["and_masks", "and_mask"]:
            waiting += members["mask_functions"]
        elif name == ["sliding_window_overlay", "inner_mask"]:
            pattern.left = min(pattern.left, members["sliding_window"] - 1)
        elif name == ["sliding_window_bidirectional_overlay", "inner_mask"]:
            pattern.left = min(pattern.left, members["sliding_window"])
            pattern.right = min(pattern.right, members["sliding_window"])
        elif name == ["packed_sequence_mask_function", "inner_mask"]:
            pattern.documents = members["packed_sequence_mask"]
        else:
            return None
    return pattern


def _is_one_document(documents):
    return documents is None or (not masking_utils.is_tracing(documents) and
                                 bool((documents[:, :1] == documents[:, -1:]).all()))


def _padding_kind(padding):
    """Whether there is padding, and whether the keys of each sequence are one range."""
    if padding is None:
        return False, True
    if masking_utils.is_tracing(padding):
        return True, False  # unknown
    first, end = _bounds(padding)
    return tuple(torch.stack((~padding.all(), (padding.sum(-1) == end - first).all())).tolist())


def _bounds(padding):
    """The first key and the end of the keys of each sequence."""
    any_key = padding.any(-1)
    first = padding.int().argmax(-1) * any_key
    end = (padding.shape[-1] - padding.flip(-1).int().argmax(-1)) * any_key
    return first, end


def _key_ranges(pattern, own, batch_size, kv_length, padding):
    """The ranges of queries whose own keys are `own`, [batch, 1, query, 2]."""
    first = (own - pattern.left).clamp(min=0).expand(batch_size, -1)
    end = (own + pattern.right + 1).clamp(max=kv_length).expand(batch_size, -1)
    if pattern.documents is not None:
        documents = pattern.documents.contiguous()
        first = torch.maximum(first, torch.searchsorted(documents, documents))
        end = torch.minimum(end, torch.searchsorted(documents, documents, right=True))
    if padding is not None:
        first_key, end_key = _bounds(padding)
        first, end = torch.maximum(first, first_key[:, None]), torch.minimum(end, end_key[:, None])
    return torch.stack((first, end), dim=-1).to(torch.int32)[:, None]
