"""Kernels of Imbrex as PyTorch operators: on CUDA tensors on the GPU, on CPU tensors in the host world."""

from ._attention import attention, attention_varlen, attention_with
from ._check import check
from ._library import compiled_variants
from ._paged_kv import fixed_point_inv_freq, paged_append, paged_decode, paged_decode_workspace

__all__ = [
    "attention",
    "attention_varlen",
    "attention_with",
    "check",
    "compiled_variants",
    "fixed_point_inv_freq",
    "paged_append",
    "paged_decode",
    "paged_decode_workspace",
]
