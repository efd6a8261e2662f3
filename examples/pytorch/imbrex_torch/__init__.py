"""Kernels of Imbrex as PyTorch operators: on CUDA tensors on the GPU, on CPU tensors in the host world."""

from ._attention import attention, attention_varlen, attention_with
from ._check import check
from ._library import compiled_variants
from ._norm import rms_norm, rms_norm_
from ._rope import rope, rope_
from ._swiglu import swiglu

__all__ = ["attention", "attention_varlen", "attention_with", "check", "compiled_variants", "rms_norm", "rms_norm_",
           "rope", "rope_", "swiglu"]
