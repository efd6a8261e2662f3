"""The native library: loaded once, its handlers registered with XLA."""

import ctypes
import pathlib

import jax

from . import _compiler

native = ctypes.CDLL(str(pathlib.Path(__file__).parent / "libimbrex_jax.so"))
native.imbrex_jax_begin_check.argtypes = [ctypes.c_int, ctypes.c_uint64]
native.imbrex_jax_end_check.restype = ctypes.c_char_p


def _compute_capability():
    return jax.devices("cuda")[0].compute_capability.split(".")


_compiler.connect(native, lambda: tuple(map(int, _compute_capability())))
for name in ("imbrex_attention_forward", "imbrex_attention_backward"):
    for platform in ("cpu", "CUDA"):
        handler = getattr(native, f"{name}_{platform.lower()}")
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(handler), platform=platform)


def compiled_variants(platform="cpu"):
    """Names of the kernels that need not be compiled any more, for "cpu" or "gpu"."""
    return _compiler.compiled_variants(for_device=platform != "cpu")
