"""Kernels of Imbrex as PyTorch operators: on CUDA tensors on the GPU, on CPU tensors in the host world."""

from ._attention import attention, attention_varlen, attention_with
from ._attention_fp8 import attention_fp8, quantize_fp8
from ._check import check
from ._library import compiled_variants
from ._norm import layer_norm, layer_norm_, rms_norm, rms_norm_
from ._paged_kv import paged_append, paged_decode, paged_decode_workspace
from ._quantized import (QuantizedLinear, QuantizedWeight, linear_fp8, linear_int4, linear_int8, linear_mxfp4,
                         quantize)
from ._rope import fixed_point_inv_freq, rope, rope_
from ._sample import sample
from ._swiglu import swiglu

__all__ = [
    "QuantizedLinear",
    "QuantizedWeight",
    "attention",
    "attention_fp8",
    "attention_varlen",
    "attention_with",
    "check",
    "compiled_variants",
    "fixed_point_inv_freq",
    "layer_norm",
    "layer_norm_",
    "linear_fp8",
    "linear_int4",
    "linear_int8",
    "linear_mxfp4",
    "paged_append",
    "paged_decode",
    "paged_decode_workspace",
    "quantize",
    "quantize_fp8",
    "rms_norm",
    "rms_norm_",
    "rope",
    "rope_",
    "sample",
    "swiglu",
]
