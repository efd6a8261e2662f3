"""RMSNorm and LayerNorm of bf16 rows, with and without a residual, against PyTorch.

    cmake --preset release && cmake --build build/release --target bench_kernels_norm_library
    python3 bench/kernels/norm.py --json norm.json
    python3 bench/kernels/norm.py --compile --points '16384x*'

The peers are torch.nn.functional.rms_norm and layer_norm, after an addition if there is a residual; with --compile also the same
functions after torch.compile, which fuses the addition. GB/s count each row that is read or written: two arrays, four with a
residual. PyTorch allocates its outputs. Launches rotate over copies of the data that exceed the caches. At each point all
contestants are interleaved in one run, each as a CUDA graph; medians. Before timing, every result is compared with float64, also for
rows with a mean of 1000. A result that differs is printed as WRONG and makes the exit status nonzero.
"""

import argparse
import ctypes
import itertools
import math
import pathlib
import sys

from attention_turns import Report, clocks, device_or_exit, matching, relative_difference, take_turns, usual_library, write_json

POINTS = ((16384, 1024), (16384, 4096), (16384, 8192), (8192, 16384), (4096, 20480), (32, 4096), (1, 4096))
EPSILON = 1e-5
ROTATED_BYTES = 200e6  # more than the L2 of an H200
LARGEST_ERROR = 0.003  # rounding to bf16 gives 0.0017
NORMS = ("RMSNorm", "LayerNorm")


class Library:
    """The functions of norm_library.cu."""

    def __init__(self, path):
        self._loaded = ctypes.CDLL(str(path))
        self._loaded.imbrex_norm_last_error.restype = ctypes.c_char_p

    def launch(self, norm, x, weight, bias, residual, out, stream):
        arrays = [x, weight, residual, out] if norm == "RMSNorm" else [x, weight, bias, residual, out]
        pointers = [ctypes.c_void_p(None if one is None else one.data_ptr()) for one in arrays]
        function = self._loaded.imbrex_rms_norm if norm == "RMSNorm" else self._loaded.imbrex_layer_norm
        if function(*pointers, *x.shape, ctypes.c_float(EPSILON), ctypes.c_void_p(stream)) != 0:
            raise RuntimeError(self._loaded.imbrex_norm_last_error().decode())


def norm_of(torch, norm, x, weight, bias):
    functional, shape = torch.nn.functional, x.shape[-1:]
    if norm == "RMSNorm":
        return functional.rms_norm(x, shape, weight, EPSILON)
    return functional.layer_norm(x, shape, weight, bias, EPSILON)


class Bench:
    """Checks and measurements."""

    def __init__(self, torch, library, compiled, rounds, seconds):
        self.torch, self.library, self.compiled = torch, library, compiled
        self.rounds, self.seconds, self.faults = rounds, seconds, 0
        torch.manual_seed(1)

    def _random(self, *shape, mean=0.0, spread=1.0):
        return (self.torch.randn(*shape, device="cuda") * spread + mean).to(self.torch.bfloat16)

    def _ours(self, norm, x, weight, bias, residual, out):
        self.library.launch(norm, x, weight, bias, residual, out, self.torch.cuda.current_stream().cuda_stream)
        return out

    def check(self, norm, columns):
        """Against float64: rows with means of 0 and 1000, with and without a residual."""
        weight, bias = self._random(columns, mean=1.0), self._random(columns)
        for mean, spread, with_residual in itertools.product((0.0, 1000.0), (1.0, 50.0), (False, True)):
            x = self._random(67, columns, mean=mean, spread=spread)
            residual = self._random(67, columns, spread=spread) if with_residual else None
            total = x if residual is None else x + residual
            right = norm_of(self.torch, norm, *(one.double() for one in (total, weight, bias)))
            out = self.torch.full_like(x, math.nan)
            error = relative_difference(self._ours(norm, x, weight, bias, residual, out), right)
            same = residual is None or self.torch.equal(residual, total)
            if not (error <= LARGEST_ERROR and same):
                self.faults += 1
                what = f"{norm} of {columns} columns, mean {mean}, residual {with_residual}"
                print(f"WRONG: {what}: error {error:.2g}, residual right: {same}", flush=True)

    def measure(self, norm, rows, columns, with_residual):
        torch, notes = self.torch, []
        arrays = 4 if with_residual else 2
        moved = arrays * rows * columns * 2
        copies = max(2, math.ceil(ROTATED_BYTES / moved))
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            x, out = self._random(copies, rows, columns), self._random(copies, rows, columns)
            residual = self._random(copies, rows, columns) if with_residual else [None] * copies
            weight, bias = self._random(columns), self._random(columns)
            turns = itertools.cycle(range(copies))

            def peer(x, residual):
                total = x if residual is None else x + residual
                return total, norm_of(torch, norm, total, weight, bias)

            def rotating(function):
                def run():
                    copy = next(turns)
                    return function(x[copy], residual[copy])

                return run

            def ours():
                copy = next(turns)
                return self._ours(norm, x[copy], weight, bias, residual[copy], out[copy])

            contestants = {"PyTorch": rotating(peer)}
            if self.compiled:
                contestants["torch.compile"] = rotating(torch.compile(peer, dynamic=False))
            contestants["Imbrex"] = ours
            for run in contestants.values():
                run()
            repeats = max(copies, min(200, round(4e9 / moved)))
            milliseconds, rounds = take_turns(
                torch, contestants, dict.fromkeys(contestants, repeats), stream, notes, self.rounds, self.seconds
            )
        notes.append(f"{rounds} rounds of {repeats}, {copies} copies")
        return {name: moved / ms * 1e-6 for name, ms in milliseconds.items()}, notes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=pathlib.Path, default=usual_library("norm_library"))
    parser.add_argument("--json", metavar="FILE", help="output file")
    parser.add_argument("--points", metavar="NAMES", default="*", help="comma-separated <rows>x<columns>, with wildcards")
    parser.add_argument("--compile", action="store_true", help="also measure torch.compile")
    parser.add_argument("--rounds", type=int, default=40, help="at most, at each point (%(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="at most, at each point (%(default)s)")
    given = parser.parse_args()
    names = matching([f"{rows}x{columns}" for rows, columns in POINTS], given.points, "--points")
    torch = device_or_exit()
    if not given.library.exists():
        sys.exit(f"--library: {given.library} not found; see the top of this file for how to build it")
    bench = Bench(torch, Library(given.library), given.compile, given.rounds, given.seconds)
    reports = []
    for norm in NORMS:
        for columns in (64, 100, 512, 1000, 1032, 4096, 8192, 16384, 20480):
            bench.check(norm, columns)
        for with_residual in (False, True):
            report = Report(norm + (" with residual" if with_residual else "") + ", bf16", "GB/s")
            for rows, columns in POINTS:
                if f"{rows}x{columns}" in names:
                    speeds, notes = bench.measure(norm, rows, columns, with_residual)
                    report.add(f"{rows} x {columns}", speeds)
                    report.notes += [f"{rows} x {columns}: {note}" for note in notes]
            report.notes.append("clocks: " + clocks())
            print(report.text(), flush=True)
            reports.append(report)
    if given.json:
        write_json(reports, given.json)
    sys.exit(1 if bench.faults else 0)


if __name__ == "__main__":
    main()
