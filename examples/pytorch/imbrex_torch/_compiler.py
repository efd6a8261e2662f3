"""Kernels compiled when they are first used, and cached by content.

A kernel is named by its binding and the template arguments: "attention_forward, bf16, 128, 128, causal_mask,
score_mod::softcap". Arguments may be functors written by the user: `add_functor` gives each source a name.

Each Python package (imbrex_torch, imbrex_jax) has this module, and calls `connect` with its native library.
"""

import ctypes
import fcntl
import functools
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

include = pathlib.Path(__file__).parent / "include"
_functors = {}  # name -> source
_native = _compute_capability = _message = None


class CompileError(RuntimeError):
    """A kernel did not compile. The message begins with the compiler's first message of Imbrex, if there is one."""


def add_functor(source, kind):
    """Registers the C++ source of a mask or score_mod, a struct called `kind`. Returns its type for names of kernels."""
    digest = hashlib.sha256(f"{kind}\n{source}".encode()).hexdigest()[:16]
    name = f"user_{kind}_{digest}"
    if not re.search(rf"\bstruct\s+{kind}\b", source):
        raise ValueError(f"{kind} source: {source.strip()[:60]!r}...; it must define struct {kind}")
    _functors[name] = source
    return f"{name}::{kind}"


def cache_folder():
    """Where compiled kernels are kept: IMBREX_TORCH_CACHE, or imbrex_torch in the user's cache (of imbrex_jax likewise)."""
    given = os.environ.get(f"{__package__.upper()}_CACHE")
    if given:
        return pathlib.Path(given)
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / __package__


def source_of(variant):
    binding = variant.split(",")[0]
    lines = [f"#include <imbrex_bindings/kernels/{binding}.hpp>"]
    for name, source in _functors.items():
        if f"{name}::" in variant:
            lines += [f"namespace imbrex::bindings::{name} {{", "// The functor is in its own namespace inside imbrex.",
                      f'#line 1 "{name}"', source, "}"]
    lines.append(f"IMBREX_VARIANT({variant})")
    return "\n".join(lines) + "\n"


@functools.cache
def _headers_digest():
    digest = hashlib.sha256()
    for folder in ("imbrex", "imbrex_bindings"):
        for header in sorted((include / folder).rglob("*.hpp")):
            digest.update(header.read_bytes())
    return digest.hexdigest()


@functools.cache
def _architecture():
    major, minor = _compute_capability()
    suffix = "a" if major >= 9 else ""
    return f"{major}{minor}{suffix}"


def _command(for_device):
    common = ["-std=c++20", "-O3" if for_device else "-O2", "-shared", "-DIMBREX_VARIANT_LIBRARY"]
    if not for_device:
        compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
        if compiler is None:
            raise CompileError("no C++ compiler: put g++ on the PATH or name one in CXX")
        return [compiler, *common, "-fPIC", "-pthread", "-fvisibility=hidden"]
    compiler = os.environ.get("CUDACXX") or shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not pathlib.Path(compiler).exists():
        raise CompileError("no CUDA compiler: put nvcc on the PATH or name one in CUDACXX")
    architecture = _architecture()
    # Without NDEBUG kernels check page numbers and the like, which costs registers.
    return [compiler, *common, "-DNDEBUG", "--expt-relaxed-constexpr", "-DIMBREX_DEVICE_ALONE", "-Xcompiler",
            "-fPIC,-fno-gnu-unique", "-gencode", f"arch=compute_{architecture},code=sm_{architecture}"]


def _first_message(log):
    """The first error in the user's source, or else the first message of a static_assert of Imbrex, or else the first error."""
    for pattern in (r"^user_\w+[:(]\d+.*error.*", r"imbrex: .*", r".*error.*"):
        found = re.search(pattern, log, re.MULTILINE)
        if found:
            return found.group(0).strip().strip('"')
    return log.strip()[-400:] or "the compiler failed without a message"


def library_of(variant, for_device):
    """The shared library of a kernel, compiled unless it is in the cache."""
    source = source_of(variant)
    command = _command(for_device)
    key = hashlib.sha256("\n".join([source, *command, _headers_digest()]).encode()).hexdigest()[:24]
    library = cache_folder() / f"{key}.so"
    if library.exists():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    with open(library.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the processes of a job need the same kernels: one of them compiles
        if not library.exists():
            name = "variant.cu" if for_device else "variant.cpp"
            _compile(variant, source, [*command, f"-I{include}"], library, name)
    return library


def _compile(variant, source, command, library, name):
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        file = pathlib.Path(scratch) / name
        file.write_text(source)
        made = pathlib.Path(scratch) / "variant.so"
        done = subprocess.run([*command, str(file), "-o", str(made)], capture_output=True, text=True)
        if done.returncode != 0:
            raise CompileError(f"{_first_message(done.stdout + done.stderr)}\n(compiling {variant})")
        os.replace(made, library)


def connect(native, compute_capability):
    """Makes this module the compiler of the package's native library. compute_capability() is (major, minor) of the GPU."""
    global _native, _compute_capability
    _native, _compute_capability = native, compute_capability
    native.imbrex_load_variant.argtypes = [ctypes.c_char_p]
    native.imbrex_load_variant.restype = ctypes.c_char_p
    native.imbrex_variant_names.restype = ctypes.c_char_p
    native.imbrex_set_compiler(_compile_missing)


def compiled_variants(for_device):
    """Names of the kernels that need not be compiled any more."""
    return [name.strip() for name in _native.imbrex_variant_names(int(for_device)).decode().splitlines()]


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int)
def _compile_missing(name, for_device):
    """Called by the library for a missing kernel. Returns null or a message."""
    try:
        library = library_of(name.decode(), bool(for_device))
        message = _native.imbrex_load_variant(str(library).encode())
    except Exception as failed:  # no Python exception may cross into C++
        message = str(failed).encode()
    if not message:
        return None
    global _message
    _message = ctypes.create_string_buffer(message)  # kept alive for the caller
    return ctypes.addressof(_message)
