"""8-bit attention forward (e4m3 Q, K and V, bf16 O) against cuDNN in bf16 and FlashAttention-3 in e4m3.

    cmake --preset release && cmake --build build/release --target bench_kernels_attention_fp8_library
    python3 bench/kernels/attention_fp8.py --json attention_fp8.json
    python3 bench/kernels/attention_fp8.py --flash-3 libflash3_fp8.so --points 'd128_*'
    python3 bench/kernels/attention_fp8.py --variants 'd128_promoted*' --points 'd128_*_16384'

Tensors are [batch, sequence, head, head_dim], random normal, quantised with a scale per tensor; batch * sequence = 16384,
heads * head_dim = 2048. The Ada-class kernel (variants d*_ada_*) runs beside the Hopper kernel and the 16-bit
Ampere-class one; both kernels without WGMMA are for other GPUs, and on Hopper 8-bit mma.sync is upconverted to fp16. TFLOP/s count 4 * batch * heads * sequence^2 * head_dim, half of that if causal. At each point
all contestants are interleaved in one run, each as a CUDA graph; medians. Before timing, every variant is compared with
attention in float64 on small problems of odd sizes, and at each point with cuDNN, both on the dequantised values. A
result that differs is printed as WRONG and makes the exit status nonzero.

FlashAttention-3: a library with this function, for e4m3 inputs and a bf16 output; `descale` has three scales:

    int flash_attention_3_forward_fp8(void* q, void* k, void* v, void* out, float* log_sums, const float* descale,
                                      int batch, int heads, int kv_heads, int queries, int keys, int head_dim, int causal,
                                      float scale, void* stream);
"""

import argparse
import ctypes
import math
import pathlib
import sys

from attention import FLASH_3, LENGTHS, Point, attention_in_float64
from attention_turns import (
    CUDNN,
    Report,
    clocks,
    device_or_exit,
    matching,
    relative_difference,
    repeats_for,
    take_turns,
    usual_library,
    write_json,
)

LARGEST_E4M3 = 448
LARGEST_ERROR = 0.06  # rounding P to e4m3 gives about 0.03
LARGEST_LOG2_ERROR = 0.02


class Library:
    """A C function with the signature at the top of this file, with or without the name of a variant before it."""

    def __init__(self, function, last_error=None):
        self._forward, self._last_error = function, last_error
        function.restype = ctypes.c_int

    def forward(self, variant, q, k, v, out, lse2, descale, causal, stream):
        batch, queries, heads, head_dim = q.shape
        pointers = [ctypes.c_void_p(one.data_ptr()) for one in (q, k, v, out, lse2, descale)]
        sizes = [batch, heads, k.shape[2], queries, k.shape[1], head_dim, int(causal)]
        named = [] if variant is None else [variant.encode()]
        status = self._forward(*named, *pointers, *sizes, ctypes.c_float(head_dim**-0.5), ctypes.c_void_p(stream))
        if status != 0:
            raise RuntimeError(f"{variant}: {status if self._last_error is None else self._last_error().decode()}")


class Bench:
    """Checks and measurements."""

    def __init__(self, torch, library, bf16_ampere, flash_3, variants, rounds, seconds):
        self.torch, self.library, self.flash_3, self.variants = torch, library, flash_3, variants
        self.bf16_ampere = bf16_ampere
        self.rounds, self.seconds, self.faults = rounds, seconds, 0
        torch.manual_seed(1)

    def _wrong(self, text):
        self.faults += 1
        print("WRONG: " + text, flush=True)

    def _quantised(self, *shapes):
        """Random tensors in e4m3, their scales, and the values that they stand for."""
        eights, scales, values = [], [], []
        for shape in shapes:
            given = self.torch.randn(*shape, device="cuda")
            scales.append(given.abs().max() / LARGEST_E4M3)
            eights.append((given / scales[-1]).to(self.torch.float8_e4m3fn))
            values.append(eights[-1].to(self.torch.float32) * scales[-1])
        return eights, self.torch.stack(scales), values

    def _ours(self, library, variant, eights, descale, causal):
        q = eights[0]
        out = self.torch.full(q.shape, math.nan, dtype=self.torch.bfloat16, device="cuda")
        lse2 = self.torch.full((q.shape[0], q.shape[2], q.shape[1]), math.nan, device="cuda")

        def run():
            stream = self.torch.cuda.current_stream().cuda_stream
            library.forward(variant, *eights, out, lse2, descale, causal, stream)
            return out

        return run, lse2

    def check_small(self):
        """Every variant against float64, with lengths that no tile divides, and GQA."""
        worst = 0.0
        for head_dim in sorted({int(name.split("_")[0][1:]) for name in self.variants}):
            for batch, heads, kv_heads, queries, keys in ((2, 4, 2, 333, 450), (1, 3, 1, 1, 1), (1, 2, 2, 640, 640)):
                shapes = [(batch, queries, heads, head_dim)] + [(batch, keys, kv_heads, head_dim)] * 2
                eights, descale, values = self._quantised(*shapes)
                for causal in (False, True):
                    right, right_log2 = attention_in_float64(self.torch, *values, causal, head_dim**-0.5)
                    for variant in self._variants_of(head_dim):
                        run, lse2 = self._ours(self.library, variant, eights, descale, causal)
                        error = relative_difference(run(), right)
                        log2_error = (lse2.double() - right_log2).abs().max().item()
                        if not (error <= LARGEST_ERROR and log2_error <= LARGEST_LOG2_ERROR):
                            self._wrong(f"{variant}, {queries} x {keys}, causal {causal}: {error:.2g}, LSE {log2_error:.2g}")
                        worst = max(worst, error)
        print(f"small problems: max relative error {worst:.2g}", flush=True)

    def _variants_of(self, head_dim):
        return [name for name in self.variants if name.startswith(f"d{head_dim}_")]

    def _cudnn(self, values, causal):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        by_head = [one.to(self.torch.bfloat16).transpose(1, 2) for one in values]

        def run():
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return self.torch.nn.functional.scaled_dot_product_attention(*by_head, is_causal=causal).transpose(1, 2)

        return run

    def _bf16_ampere(self, values, causal):
        q, k, v = (one.to(self.torch.bfloat16) for one in values)
        out = self.torch.empty_like(q)
        batch, length, heads, head_dim = q.shape
        pointers = [ctypes.c_void_p(one.data_ptr()) for one in (q, k, v, out)]

        def run():
            assert q.is_cuda and k.is_cuda and v.is_cuda  # and alive
            stream = self.torch.cuda.current_stream().cuda_stream
            sizes = [batch, heads, length, head_dim, int(causal)]
            if self.bf16_ampere(*pointers, *sizes, ctypes.c_float(head_dim**-0.5), ctypes.c_void_p(stream)) != 0:
                raise RuntimeError("the 16-bit Ampere-class kernel failed")
            return out

        return run

    def measure(self, point):
        torch, notes = self.torch, []
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            eights, descale, values = self._quantised(*[(point.batch, point.length, point.heads, point.head_dim)] * 3)
            contestants = {CUDNN + ", bf16": self._cudnn(values, point.causal)}
            expected = next(iter(contestants.values()))().float()
            if self.flash_3 is not None:
                contestants[FLASH_3] = self._ours(self.flash_3, None, eights, descale, point.causal)[0]
            for variant in self._variants_of(point.head_dim):
                contestants["Imbrex " + variant.split("_", 1)[1]] = self._ours(
                    self.library, variant, eights, descale, point.causal
                )[0]
            if any("_ada_" in name for name in self._variants_of(point.head_dim)):
                contestants["Imbrex bf16, Ampere-class"] = self._bf16_ampere(values, point.causal)
            farthest = 0.0
            for name, run in contestants.items():
                difference = relative_difference(run(), expected)
                farthest = max(farthest, difference)
                if not difference <= LARGEST_ERROR:
                    self._wrong(f"{name} at {point.name} differs from cuDNN by {difference:.2g}")
            del expected, values
            repeats = repeats_for(point.flop)
            milliseconds, rounds = take_turns(
                torch, contestants, dict.fromkeys(contestants, repeats), stream, notes, self.rounds, self.seconds
            )
        notes.append(f"{rounds} rounds of {repeats}; differs from cuDNN by {farthest:.2g} at most")
        return milliseconds, notes


def reports_of(points, bench):
    reports = []
    for head_dim, causal in dict.fromkeys((point.head_dim, point.causal) for point in points):
        report = Report(f"attention forward, e4m3, head_dim {head_dim}, {'causal' if causal else 'full'}", "TFLOP/s")
        for point in points:
            if (point.head_dim, point.causal) == (head_dim, causal):
                milliseconds, notes = bench.measure(point)
                report.add(point.problem, {name: point.flop / ms * 1e-9 for name, ms in milliseconds.items()})
                report.notes += [f"{point.problem}: {note}" for note in notes]
        report.notes.append("clocks: " + clocks())
        print(report.text(), flush=True)
        reports.append(report)
    return reports


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=pathlib.Path, default=usual_library("attention_fp8_library"))
    parser.add_argument("--flash-3", metavar="LIBRARY", type=pathlib.Path, help="library with FlashAttention-3")
    parser.add_argument("--json", metavar="FILE", help="output file")
    parser.add_argument("--variants", metavar="NAMES", default="*", help="comma-separated, with wildcards")
    parser.add_argument("--points", metavar="NAMES", default="d128_*,d64_*_16384,d256_*_16384")
    parser.add_argument("--rounds", type=int, default=40, help="at most, at each point (%(default)s)")
    parser.add_argument("--seconds", type=float, default=1.5, help="at most, at each point (%(default)s)")
    given = parser.parse_args()
    points = [Point(head_dim, causal, length) for head_dim in (128, 64, 256) for causal in (False, True) for length in LENGTHS]
    names = matching([point.name for point in points], given.points, "--points")
    loaded = ctypes.CDLL(str(given.library))
    loaded.imbrex_attention_fp8_variants.restype = loaded.imbrex_attention_fp8_last_error.restype = ctypes.c_char_p
    every = loaded.imbrex_attention_fp8_variants().decode().split()
    torch = device_or_exit()
    library = Library(loaded.imbrex_attention_fp8_forward, loaded.imbrex_attention_fp8_last_error)
    flash_3 = given.flash_3 and Library(ctypes.CDLL(str(given.flash_3.resolve())).flash_attention_3_forward_fp8)
    variants = matching(every, given.variants, "--variants")
    bench = Bench(torch, library, loaded.imbrex_attention_bf16_ampere, flash_3, variants, given.rounds, given.seconds)
    bench.check_small()
    reports = reports_of([point for point in points if point.name in names], bench)
    if given.json:
        write_json(reports, given.json)
    sys.exit(1 if bench.faults else 0)


if __name__ == "__main__":
    main()
