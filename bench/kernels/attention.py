"""Attention forward against PyTorch SDPA (cuDNN, FlashAttention-2) and FlashAttention-3.

    cmake --preset release && cmake --build build/release --target bench_kernels_attention_library
    python3 bench/kernels/attention.py --json attention.json            all points, the default variants
    python3 bench/kernels/attention.py --flash-3 libflash3.so           with FlashAttention-3
    python3 bench/kernels/attention.py --pause 0.03                     on a device that is not at its power limit
    python3 bench/kernels/attention.py --points 'd128_causal_*' --variants 'd128_2x128*'
    python3 bench/plot.py attention.json attention.svg

Tensors are bf16 [batch, sequence, head, head_dim], random normal; batch * sequence = 16384, heads * head_dim = 2048
(2016 with head_dim 96). TFLOP/s count 4 * batch * heads * sequence^2 * head_dim, half of that if causal. At each point
all contestants are interleaved in one run, each as a CUDA graph (if it can be captured) of about a millisecond of
launches; medians of many rounds. Before timing, every variant is compared with attention in float64 on small problems
of odd sizes, and at each point with cuDNN. A result that differs is printed as WRONG and makes the exit status nonzero.
Imbrex also writes the LSE, as FlashAttention does.

FlashAttention-3 is not part of PyTorch. Pass a library with one C function around its run_mha_fwd_, for bf16 and
head_dim 64, 96 and 128, that fills its parameters as its flash_api.cpp does and returns 0:

    int flash_attention_3_forward(void* q, void* k, void* v, void* out, float* log_sums, int batch, int heads, int kv_heads,
                                  int queries, int keys, int head_dim, int causal, float scale, void* stream);
"""

import argparse
import ctypes
import math
import pathlib
import sys
from typing import NamedTuple

from attention_turns import (
    CUDNN,
    FLASH_2,
    LARGEST_DIFFERENCE,
    LARGEST_ERROR,
    LARGEST_LOG2_ERROR,
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

TOKENS = 16384
WIDTH = 2048
LENGTHS = [1024, 2048, 4096, 8192, 16384]

FLASH_3 = "FlashAttention-3"


class Point(NamedTuple):
    head_dim: int
    causal: bool
    length: int

    @property
    def name(self):
        return f"d{self.head_dim}_{'causal' if self.causal else 'full'}_{self.length}"

    @property
    def batch(self):
        return TOKENS // self.length

    @property
    def heads(self):
        return WIDTH // self.head_dim

    @property
    def flop(self):
        whole = 4 * self.batch * self.heads * self.length**2 * self.head_dim
        return whole // 2 if self.causal else whole

    @property
    def problem(self):
        return f"{self.batch} x {self.length}, {self.heads} heads"


def all_points():
    return [Point(head_dim, causal, length) for head_dim in (64, 96, 128) for causal in (False, True) for length in LENGTHS]


DYNAMIC = "_dynamic"


def usual_variants(names):
    """Every shape, and the dynamic scheduler for the first shape of each head_dim."""
    usual, head_dims = [], []
    for name in names:
        head_dim = name.split("_")[0]
        if not name.endswith(DYNAMIC):
            usual.append(name)
        elif head_dim not in head_dims:
            usual.append(name)
            head_dims.append(head_dim)
    return usual


def variants_at(point, names):
    """The variants for a point. The scheduler matters only under a causal mask, where tiles take different times."""
    fitting = [name for name in names if name.startswith(f"d{point.head_dim}_")]
    if point.causal:
        return fitting
    shapes = [name.removesuffix(DYNAMIC) for name in fitting]
    return [name for i, name in enumerate(shapes) if name not in shapes[:i]]


def title_of_variant(name):
    shape = name.split("_", 1)[1]
    titles = {"heuristic": "Imbrex", "lazy_rescaling": "Imbrex, lazy rescaling"}
    return titles.get(shape, "Imbrex " + shape.replace(DYNAMIC, ", dynamic scheduler"))


def speeds(point, milliseconds):
    """TFLOP/s of each contestant."""
    return {name: point.flop / time * 1e-9 for name, time in milliseconds.items()}


def reports_of(points, measure, read_clocks=clocks):
    """One table per head_dim and mask. `measure` returns the milliseconds of each contestant at a point, and notes."""
    reports = []
    for kind in dict.fromkeys((point.head_dim, point.causal) for point in points):
        report = Report(f"attention forward, bf16, head_dim {kind[0]}, {'causal' if kind[1] else 'full'}", "TFLOP/s")
        for point in points:
            if (point.head_dim, point.causal) != kind:
                continue
            milliseconds, notes = measure(point)
            report.add(point.problem, speeds(point, milliseconds))
            report.notes += [f"{point.problem}: {note}" for note in notes]
        report.notes.append("clocks: " + read_clocks())
        print(report.text(), flush=True)
        reports.append(report)
    return reports


class Library:
    """The functions of attention_library.cu."""

    def __init__(self, path):
        library = ctypes.CDLL(str(path))
        self._forward = library.imbrex_attention_forward
        self._forward.restype = ctypes.c_int
        tensors, sizes = [ctypes.c_void_p] * 5, [ctypes.c_int] * 7
        self._forward.argtypes = [ctypes.c_char_p, *tensors, *sizes, ctypes.c_float, ctypes.c_void_p]
        self._last_error = library.imbrex_attention_last_error
        self._last_error.restype = ctypes.c_char_p
        library.imbrex_attention_variants.restype = ctypes.c_char_p
        self.variants = library.imbrex_attention_variants().decode().split()

    def forward(self, variant, q, k, v, out, lse2, causal, scale, stream):
        """Tensors are contiguous [batch, sequence, head, head_dim]; lse2 is [batch, head, sequence]."""
        batch, queries, heads, head_dim = q.shape
        keys, kv_heads = k.shape[1:3]
        pointers = [tensor.data_ptr() for tensor in (q, k, v, out, lse2)]
        sizes = [batch, heads, kv_heads, queries, keys, head_dim, int(causal)]
        if self._forward(variant.encode(), *pointers, *sizes, scale, stream) != 0:
            raise RuntimeError(f"{variant}: {self._last_error().decode()}")


class Flash3:
    """FlashAttention-3 behind the C function described at the top of this file."""

    def __init__(self, path):
        self._forward = ctypes.CDLL(str(path)).flash_attention_3_forward
        self._forward.restype = ctypes.c_int
        self._forward.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_int] * 7 + [ctypes.c_float, ctypes.c_void_p]

    def forward(self, q, k, v, out, log_sums, causal, scale, stream):
        batch, queries, heads, head_dim = q.shape
        pointers = [tensor.data_ptr() for tensor in (q, k, v, out, log_sums)]
        sizes = [batch, heads, k.shape[2], queries, k.shape[1], head_dim, int(causal)]
        status = self._forward(*pointers, *sizes, scale, stream)
        if status != 0:
            raise RuntimeError(f"flash_attention_3_forward returned {status}")


def attention_in_float64(torch, q, k, v, causal, scale):
    """O and the base-2 LSE, in the layouts of the kernel."""
    q, k, v = (tensor.transpose(1, 2).double() for tensor in (q, k, v))
    k, v = (tensor.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for tensor in (k, v))
    scores = q @ k.transpose(2, 3) * scale
    if causal:
        queries, keys = scores.shape[2:]
        seen = torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(keys - queries)
        scores.masked_fill_(~seen, -math.inf)
    out = torch.softmax(scores, dim=3) @ v
    return out.transpose(1, 2), torch.logsumexp(scores, dim=3) * math.log2(math.e)


class Bench:
    """Checks and measurements. Variants that fail or are wrong on small problems are skipped afterwards."""

    def __init__(self, torch, library, flash_3, variants, rounds, seconds, pause=0.0, device="cuda"):
        self.torch, self.library, self.flash_3, self.variants = torch, library, flash_3, variants
        self.rounds, self.seconds, self.pause, self.device = rounds, seconds, pause, device
        self.faults = 0
        torch.manual_seed(1)
        self.values = [self._random(TOKENS * WIDTH) for _ in range(3)]

    def _random(self, *shape):
        return self.torch.randn(*shape, device=self.device).to(self.torch.bfloat16)

    def _outputs(self, q):
        """O and LSE buffers, filled with NaN."""
        batch, queries, heads, _ = q.shape
        lse2 = self.torch.full((batch, heads, queries), math.nan, device=self.device)
        return self.torch.full_like(q, math.nan), lse2

    def _wrong(self, text):
        self.faults += 1
        print("WRONG: " + text, flush=True)

    def _ours(self, variant, q, k, v, out, lse2, causal):
        def run():
            stream = self.torch.cuda.current_stream().cuda_stream
            self.library.forward(variant, q, k, v, out, lse2, causal, q.shape[3] ** -0.5, stream)
            return out

        return run

    def _peers(self, q, k, v, causal, notes):
        """The peers that support the problem; a note for each that does not."""
        from torch.nn.attention import SDPBackend, sdpa_kernel

        attend = self.torch.nn.functional.scaled_dot_product_attention
        by_head = [tensor.transpose(1, 2) for tensor in (q, k, v)]

        def peer(backend):
            def run():
                with sdpa_kernel(backend):
                    return attend(*by_head, is_causal=causal, scale=q.shape[3] ** -0.5).transpose(1, 2)

            return run

        able = {}
        for name, backend in {CUDNN: SDPBackend.CUDNN_ATTENTION, FLASH_2: SDPBackend.FLASH_ATTENTION}.items():
            try:
                peer(backend)()
                able[name] = peer(backend)
            except RuntimeError as fault:
                notes.append(f"{name} is skipped: {str(fault).splitlines()[0]}")
        if self.flash_3 is not None:
            out, log_sums = self._outputs(q)

            def flash_3():
                stream = self.torch.cuda.current_stream().cuda_stream
                self.flash_3.forward(q, k, v, out, log_sums, causal, q.shape[3] ** -0.5, stream)
                return out

            able[FLASH_3] = flash_3
        return able

    def check_small(self):
        """Every variant against float64, with lengths that no tile divides, and GQA."""
        worst, worst_log2 = 0.0, 0.0
        unfit = set()
        for head_dim in (64, 96, 128):
            for batch, heads, kv_heads, queries, keys in ((2, 4, 2, 333, 450), (1, 3, 1, 1, 1), (1, 2, 2, 640, 640)):
                q = self._random(batch, queries, heads, head_dim)
                k, v = (self._random(batch, keys, kv_heads, head_dim) for _ in range(2))
                for causal in (False, True):
                    sizes = f"{batch} x {queries} x {keys}, {heads} heads, {'causal' if causal else 'full'}"
                    right, right_log2 = attention_in_float64(self.torch, q, k, v, causal, head_dim**-0.5)
                    for variant in variants_at(Point(head_dim, causal, queries), self.variants):
                        out, lse2 = self._outputs(q)
                        try:
                            self._ours(variant, q, k, v, out, lse2, causal)()
                        except RuntimeError as fault:
                            self._wrong(f"{variant}, {sizes}: {fault}")
                            unfit.add(variant)
                            continue
                        error = relative_difference(out, right)
                        log2_error = (lse2.double() - right_log2).abs().max().item()
                        if not (error <= LARGEST_ERROR and log2_error <= LARGEST_LOG2_ERROR):
                            self._wrong(f"{variant}, {sizes}: error {error:.2g}, LSE error {log2_error:.2g}")
                            unfit.add(variant)
                        worst, worst_log2 = max(worst, error), max(worst_log2, log2_error)
        self.variants = [variant for variant in self.variants if variant not in unfit]
        print(f"small problems: max relative error {worst:.2g}, LSE {worst_log2:.2g}", flush=True)

    def accuracy(self, length=4096):
        """Peers and Imbrex against float64."""
        report = Report(f"attention forward, bf16, relative error against float64, {length} keys", "1e-3")
        for head_dim in (64, 96, 128):
            q, k, v = (self._random(1, length, 4, head_dim) for _ in range(3))
            for causal in (False, True):
                right, _ = attention_in_float64(self.torch, q, k, v, causal, head_dim**-0.5)
                contestants = self._peers(q, k, v, causal, report.notes)
                for variant in variants_at(Point(head_dim, causal, length), self.variants):
                    contestants[title_of_variant(variant)] = self._ours(variant, q, k, v, *self._outputs(q), causal)
                errors = {name: relative_difference(run(), right) * 1e3 for name, run in contestants.items()}
                report.add(f"head_dim {head_dim}, {'causal' if causal else 'full'}", errors)
        print(report.text(), flush=True)
        return report

    def measure(self, point):
        """Milliseconds of each contestant, and notes. The timed run is also checked: against a peer before, and against
        its own first result afterwards, since a result that changes is a race."""
        shape = (point.batch, point.length, point.heads, point.head_dim)
        q, k, v = (values[: math.prod(shape)].view(shape) for values in self.values)
        notes = []
        stream = self.torch.cuda.Stream()
        self.torch.cuda.synchronize()
        with self.torch.cuda.stream(stream):
            contestants = self._peers(q, k, v, point.causal, notes)
            peer = next(iter(contestants), None)
            expected = None if peer is None else contestants[peer]().float()
            for name, run in contestants.items():
                difference = relative_difference(run(), expected)
                if not difference <= LARGEST_DIFFERENCE:
                    self._wrong(f"{name} at {point.name} differs from {peer} by {difference:.2g}")
            farthest = 0.0
            ours = {}
            for variant in variants_at(point, self.variants):
                name = title_of_variant(variant)
                out, lse2 = self._outputs(q)
                contestants[name] = self._ours(variant, q, k, v, out, lse2, point.causal)
                ours[name] = (out, contestants[name]().clone())
                if expected is not None:
                    difference = relative_difference(out, expected)
                    farthest = max(farthest, difference)
                    if not difference <= LARGEST_DIFFERENCE:
                        self._wrong(f"{variant} at {point.name} differs from {peer} by {difference:.2g}")
                out.fill_(math.nan)
            del expected
            repeats = repeats_for(point.flop)
            milliseconds, rounds = take_turns(
                self.torch,
                contestants,
                dict.fromkeys(contestants, repeats),
                stream,
                notes,
                self.rounds,
                self.seconds,
                self.pause,
            )
            for name, (out, first) in ours.items():
                if not self.torch.equal(out, first):
                    self._wrong(f"{name} at {point.name} is not deterministic")
        compared = "no peer to compare with" if peer is None else f"differs from {peer} by {farthest:.2g} at most"
        notes.append(f"{rounds} rounds of {repeats}; {compared}")
        return milliseconds, notes


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    usual = usual_library("attention_library")
    parser.add_argument("--library", type=pathlib.Path, default=usual, help="built from attention_library.cu (%(default)s)")
    parser.add_argument("--flash-3", metavar="LIBRARY", type=pathlib.Path, help="library with FlashAttention-3")
    parser.add_argument("--json", metavar="FILE", help="output file for bench/plot.py")
    parser.add_argument("--variants", metavar="NAMES", help="comma-separated, with wildcards; see --list")
    parser.add_argument("--points", metavar="NAMES", default="*", help="such as d128_causal_4096,d64_*")
    parser.add_argument("--rounds", type=int, default=40, help="at most, at each point (%(default)s)")
    parser.add_argument("--seconds", type=float, default=2, help="at most, at each point (%(default)s)")
    parser.add_argument("--pause", type=float, default=0, help="seconds to sleep before each measurement (%(default)s)")
    parser.add_argument("--list", action="store_true", help="print the points and variants, and exit")
    return parser.parse_args(words)


def main(words):
    chosen = parse(words)
    names = matching([point.name for point in all_points()], chosen.points, "--points")
    points = [point for point in all_points() if point.name in names]
    if chosen.pause < 0:
        sys.exit(f"--pause: {chosen.pause}; must be 0 or more seconds")
    if not chosen.library.exists():
        sys.exit(f"--library: {chosen.library} not found; see the top of this file for how to build it")
    library = Library(chosen.library)
    variants = usual_variants(library.variants)
    if chosen.variants is not None:
        variants = matching(library.variants, chosen.variants, "--variants")
    if chosen.list:
        print("points:", *names, "variants:", *library.variants, sep="\n")
        return 0

    torch = device_or_exit()
    flash_3 = None if chosen.flash_3 is None else Flash3(chosen.flash_3.resolve())
    bench = Bench(torch, library, flash_3, variants, chosen.rounds, chosen.seconds, chosen.pause)
    bench.check_small()
    reports = [bench.accuracy(), *reports_of(points, bench.measure)]
    if chosen.json is not None:
        write_json(reports[1:] + reports[:1], chosen.json)
    return 1 if bench.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
