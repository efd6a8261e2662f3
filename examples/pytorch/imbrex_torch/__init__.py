"""Kernels of Imbrex as PyTorch operators: on CUDA tensors on the GPU, on CPU tensors in the host world."""

from ._attention import attention, attention_varlen, attention_with
from ._check import check
from ._library import compiled_variants
from ._paged_kv import fixed_point_inv_freq, paged_append, paged_decode, paged_decode_workspace
from ._quantized import (QuantizedLinear, QuantizedWeight, linear_fp8, linear_int4, linear_int8, linear_mxfp4,
                         quantize)

__all__ = [
    "QuantizedLinear",
    "QuantizedWeight",
    "attention",
    "attention_varlen",
    "attention_with",
    "check",
    "compiled_variants",
    "fixed_point_inv_freq",
    "linear_fp8",
    "linear_int4",
    "linear_int8",
    "linear_mxfp4",
    "paged_append",
    "paged_decode",
    "paged_decode_workspace",
    "quantize",
]
