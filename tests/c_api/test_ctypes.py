"""The C library called from Python without anything but the standard library: test_ctypes.py LIBRARY

Results are compared with loops. The structures repeat imbrex_c.h, and so notice if their layout changes.
"""

import ctypes
import math
import random
import shutil
import struct
import subprocess
import sys
import unittest
from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_uint16, c_uint64, c_void_p

BF16, FLOAT = 1, 3
HOST, HOST_CHECKED = 0, 1
SUCCESS, INVALID_ARGUMENT, UNKNOWN_VARIANT, HAZARD = 0, 1, 2, 3
CAUSAL = 1


class Tensor(Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int32), ("rank", c_int32), ("sizes", c_int64 * 5),
                ("strides", c_int64 * 5)]


class Execution(Structure):
    _fields_ = [("size", c_size_t), ("world", c_int32), ("schedules", c_int32), ("first_seed", c_uint64),
                ("stream", c_void_p), ("allocate", c_void_p), ("allocate_context", c_void_p)]


class Attention(Structure):
    _fields_ = [("size", c_size_t), *((name, Tensor) for name in (
        "q", "k", "v", "out", "lse2", "sinks", "seqused_k", "cu_seqlens_q", "cu_seqlens_k")),
        ("scale", c_float), ("softcap", c_float), ("mask", c_int32), ("window_left", c_int32),
        ("window_right", c_int32), ("reserved", c_int32)]


class Gemm(Structure):
    _fields_ = [("size", c_size_t), ("a", Tensor), ("b", Tensor), ("out", Tensor), ("bias", Tensor)]


class Session(Structure):
    _fields_ = [("size", c_size_t), *((name, c_int32) for name in (
        "dtype", "heads", "kv_heads", "head_dim", "capacity", "tokens", "page_size", "window")),
        ("scale", c_float), ("softcap", c_float), ("rope_theta", c_double), ("rotary_dim", c_int32),
        ("rope_interleaved", c_int32), ("sinks", c_void_p)]


class Array:
    """bf16 or fp32 values in memory of their own."""

    def __init__(self, shape, dtype=BF16, values=None):
        self.shape, self.dtype, self.count = shape, dtype, math.prod(shape)
        self.memory = ((c_uint16 if dtype == BF16 else c_float) * self.count)()
        if values is not None:
            self.memory[:] = [bits_of(value) for value in values] if dtype == BF16 else values

    def tensor(self, *, sizes=None, strides=None):
        sizes = sizes or self.shape
        strides = strides or [math.prod(sizes[i + 1:]) for i in range(len(sizes))]
        return Tensor(ctypes.addressof(self.memory), self.dtype, len(sizes), (c_int64 * 5)(*sizes),
                      (c_int64 * 5)(*strides))

    def values(self):
        return [struct.unpack("<f", struct.pack("<I", bits << 16))[0] for bits in self.memory] \
            if self.dtype == BF16 else list(self.memory)


def bits_of(value):
    return struct.unpack("<I", struct.pack("<f", value))[0] >> 16


def random_array(shape, seed):
    draw = random.Random(seed)
    return Array(shape, values=[draw.randrange(-64, 65) / 64 for _ in range(math.prod(shape))])


def structure(kind, **members):
    return kind(size=ctypes.sizeof(kind), **members)


def attention_row(query, keys, values, scale):
    """Output and base-2 LSE of one query."""
    weights = [math.exp(scale * sum(a * b for a, b in zip(query, key))) for key in keys]
    total = sum(weights)
    return [sum(w * value[i] for w, value in zip(weights, values)) / total for i in range(len(query))], math.log2(total)


def rows(values, width):
    return [values[i:i + width] for i in range(0, len(values), width)]


class CLibrary(unittest.TestCase):
    def succeeds(self, status):
        self.assertEqual(status, SUCCESS, library.imbrex_last_error().decode())

    def fails(self, status, wanted, text):
        self.assertEqual(status, wanted)
        self.assertIn(text, library.imbrex_last_error().decode())

    def attention(self, length=12, head_dim=64):
        self.q, self.k, self.v = (random_array((1, length, 1, head_dim), seed) for seed in range(3))
        self.out, self.lse2 = Array((1, length, 1, head_dim)), Array((1, 1, length), FLOAT)
        return structure(Attention, q=self.q.tensor(), k=self.k.tensor(), v=self.v.tensor(), out=self.out.tensor(),
                         lse2=self.lse2.tensor(), mask=CAUSAL)

    def test_attention(self):
        arguments = self.attention()
        self.succeeds(library.imbrex_attention(structure(Execution, world=HOST), arguments))
        q, k, v, out = (rows(array.values(), 64) for array in (self.q, self.k, self.v, self.out))
        for row in range(12):
            expected, lse2 = attention_row(q[row], k[:row + 1], v[:row + 1], 1 / 8)
            self.assertAlmostEqual(self.lse2.values()[row], lse2, delta=1e-3)
            for found, wanted in zip(out[row], expected):
                self.assertAlmostEqual(found, wanted, delta=0.01)

    def test_checker(self):
        arguments = self.attention(length=200)
        on = structure(Execution, world=HOST_CHECKED, schedules=3)
        self.succeeds(library.imbrex_attention(on, arguments))
        arguments.out = self.k.tensor()
        self.fails(library.imbrex_attention(on, arguments), HAZARD, "hazard: race")

    def test_errors(self):
        on, arguments = structure(Execution, world=HOST), self.attention()
        self.fails(library.imbrex_attention(on, None), INVALID_ARGUMENT, "arguments: null")
        arguments.k.dtype = FLOAT
        self.fails(library.imbrex_attention(on, arguments), INVALID_ARGUMENT, "k.dtype: float; must be bf16")
        arguments = self.attention(head_dim=256)
        self.fails(library.imbrex_attention(on, arguments), UNKNOWN_VARIANT, "attention_forward, bf16, 256, 256, causal_mask")

    def test_gemm(self):
        m, n, k = 9, 16, 24
        a, b, bias, out = random_array((m, k), 1), random_array((n, k), 2), random_array((n,), 3), Array((m, n))
        arguments = structure(Gemm, a=a.tensor(), b=b.tensor(sizes=(k, n), strides=(1, k)), out=out.tensor(),
                              bias=bias.tensor())
        self.succeeds(library.imbrex_gemm(structure(Execution, world=HOST), arguments))
        a, b, found = rows(a.values(), k), rows(b.values(), k), rows(out.values(), n)
        for row in range(m):
            for column in range(n):
                expected = bias.values()[column] + sum(x * y for x, y in zip(a[row], b[column]))
                self.assertAlmostEqual(found[row][column], expected, delta=0.01 * (1 + abs(expected)))

    def test_session(self):
        """A prompt of three tokens, then two single ones; without RoPE."""
        q, k, v = (random_array((5, 1, 64), seed) for seed in range(3))
        out = Array((5, 1, 64))
        configuration = structure(Session, dtype=BF16, heads=1, kv_heads=1, head_dim=64, capacity=16, page_size=16)
        session = c_void_p()
        self.succeeds(library.imbrex_session_create(structure(Execution, world=HOST), configuration, session))
        for first, count in ((0, 3), (3, 1), (4, 1)):
            parts = []
            for array in (q, k, v, out):
                part = array.tensor(sizes=(count, 1, 64))
                part.data += first * 64 * 2
                parts.append(part)
            self.succeeds(library.imbrex_session_step(session, *parts, None, None))
        self.assertEqual(library.imbrex_session_length(session), 5)
        library.imbrex_session_destroy(session)
        q, k, v, out = (rows(array.values(), 64) for array in (q, k, v, out))
        for row in range(5):
            expected, _ = attention_row(q[row], k[:row + 1], v[:row + 1], 1 / 8)
            for found, wanted in zip(out[row], expected):
                self.assertAlmostEqual(found, wanted, delta=0.01)

    def test_exports(self):
        if shutil.which("nm") is None:
            self.skipTest("nm not found")
        listing = subprocess.run(["nm", "-D", "--defined-only", library._name], capture_output=True, text=True, check=True)
        symbols = [line.split()[-1].split("@")[0] for line in listing.stdout.splitlines()]
        self.assertIn("imbrex_attention", symbols)
        self.assertEqual([name for name in symbols if not name.lower().startswith("imbrex_")], [])


def load(path):
    loaded = ctypes.CDLL(path)
    tensors = {"append": 2, "decode": 3, "step": 5}
    for name, count in tensors.items():
        getattr(loaded, f"imbrex_session_{name}").argtypes = [c_void_p, *[POINTER(Tensor)] * count, c_void_p]
    loaded.imbrex_attention.argtypes = [POINTER(Execution), POINTER(Attention)]
    loaded.imbrex_gemm.argtypes = [POINTER(Execution), POINTER(Gemm)]
    loaded.imbrex_session_create.argtypes = [POINTER(Execution), POINTER(Session), POINTER(c_void_p)]
    loaded.imbrex_session_length.argtypes = [c_void_p]
    loaded.imbrex_session_destroy.argtypes = [c_void_p]
    loaded.imbrex_session_destroy.restype = None
    loaded.imbrex_last_error.restype = c_char_p
    return loaded


if __name__ == "__main__":
    library = load(sys.argv.pop(1))
    unittest.main()
