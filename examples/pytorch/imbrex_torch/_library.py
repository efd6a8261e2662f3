"""The native library: loaded once, with a compiler for kernels that it lacks."""

import ctypes
import pathlib

import torch

from . import _compiler

folder = pathlib.Path(__file__).parent
_path = folder / "libimbrex_torch.so"
torch.ops.load_library(str(_path))
native = ctypes.CDLL(str(_path))
native.imbrex_torch_begin_check.argtypes = [ctypes.c_int, ctypes.c_uint64]
native.imbrex_torch_end_check.restype = ctypes.c_char_p
native.imbrex_torch_load_variant.argtypes = [ctypes.c_char_p]
native.imbrex_torch_load_variant.restype = ctypes.c_char_p
native.imbrex_torch_variant_names.restype = ctypes.c_char_p


def compiled_variants(device="cpu"):
    """Names of the kernels that need not be compiled any more, for "cpu" or "cuda"."""
    names = native.imbrex_torch_variant_names(int(torch.device(device).type == "cuda"))
    return [name.strip() for name in names.decode().splitlines()]


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int)
def _compile(name, for_device):
    """Called by the library for a missing kernel. Returns null or a message."""
    try:
        library = _compiler.library_of(name.decode(), bool(for_device))
        message = native.imbrex_torch_load_variant(str(library).encode())
    except Exception as failed:  # no Python exception may cross into C++
        message = str(failed).encode()
    if not message:
        return None
    global _message
    _message = ctypes.create_string_buffer(message)  # kept alive for the caller
    return ctypes.addressof(_message)


native.imbrex_torch_set_compiler(_compile)
