"""The native library, loaded once."""

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
_compiler.connect(native, torch.cuda.get_device_capability)


def compiled_variants(device="cpu"):
    """Names of the kernels that need not be compiled any more, for "cpu" or "cuda"."""
    return _compiler.compiled_variants(for_device=torch.device(device).type == "cuda")
