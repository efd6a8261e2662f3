"""Attention of Imbrex as a JAX function: on a GPU, or on a CPU in the host world."""

from ._attention import attention
from ._check import check
from ._library import compiled_variants

__all__ = ["attention", "check", "compiled_variants"]
