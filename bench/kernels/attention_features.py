"""The cost of attention forward features: head dims, GQA, varlen, sliding windows, softcap, sinks, paged KV caches.

    cmake --preset release && cmake --build build/release --target bench_kernels_attention_features_library
    python3 bench/kernels/attention_features.py --json features.json
    python3 bench/kernels/attention_features.py --cases 'window*,softcap' --library one.so,other.so
    python3 bench/kernels/attention_features.py --cases 'paged*'    # 8-bit KV caches beside bf16

Each feature is compared with the plain kernel (head_dim 128, MHA) at the same number of tokens, interleaved in one run.
bf16, random normal data, [batch, sequence, head, head_dim], heads * head_dim about 2048. TFLOP/s count 2 * (head_dim +
head_dim_v) for each unmasked pair of query and key; "in whole tiles" counts all pairs of the tiles with an unmasked
pair, which a kernel cannot skip. Ratios are to the plain kernel with the same mask (windows: causal). Peers are listed
where they support the feature. Work tiles are shorter under a window, so sequences of 1024 are included for comparison.

Before timing, each case is compared with attention in float64 on a small problem of odd lengths. A result that differs
is printed as WRONG and makes the exit status nonzero. With several libraries, contestants are named by library.
"""

import argparse
import ctypes
import math
import pathlib
import random
import sys
from typing import NamedTuple

from attention_turns import (
    CUDNN,
    FLASH_2,
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

WIDTH = 2048
SIZES = [(4, 4096), (1, 16384)]  # batch, length
CAP = 30.0
TANH_ERROR = 2**-11  # relative error of the hardware tanh


class Case(NamedTuple):
    name: str
    head_dim: int = 128
    head_dim_v: int = 128
    q_heads_per_kv_head: int = 1
    window: int = 0  # keys visible to a query, including its own; 0: no window
    capped: bool = False
    lazy_rescaling: bool = False
    sinks: bool = False
    packed: bool = False
    dynamic_scheduler: bool = False
    length: int = 0  # sequence length, if it differs from the others
    page_size: int = 0  # of a paged KV cache, pages in random order
    cache: str = ""  # e4m3 or int8 with a scale per head; otherwise bf16

    @property
    def heads(self):
        return round(WIDTH / self.head_dim)

    def variant(self, causal):
        """The name of the variant in the library."""
        head_dim = f"d{self.head_dim}" if self.head_dim == self.head_dim_v else f"d{self.head_dim}x{self.head_dim_v}"
        mask = "window" if self.window > 0 else "causal" if causal else "full"
        name = f"{head_dim}_{mask}" + ("_softcap" if self.capped else "") + ("_lazy_rescaling" if self.lazy_rescaling else "")
        return name + ("_paged" if self.page_size > 0 else "") + (f"_{self.cache}" if self.cache else "")


PLAIN = Case("plain")
CASES = [
    PLAIN,
    Case("head_dim 96", 96, 96),
    Case("head_dim 96, lazy rescaling", 96, 96, lazy_rescaling=True),
    Case("head_dim 192, head_dim_v 128", 192, 128),
    Case("head_dim 192", 192, 192),
    Case("head_dim 256", 256, 256),
    Case("GQA, 4 heads per kv_head", q_heads_per_kv_head=4),
    Case("sequences of 1024", length=1024),
    Case("window of 1024", window=1024),
    Case("window of 4096", window=4096),
    Case("softcap", capped=True),
    Case("softcap, lazy rescaling", capped=True, lazy_rescaling=True),
    Case("sinks", sinks=True),
    Case("varlen", packed=True),
    Case("varlen, dynamic scheduler", packed=True, dynamic_scheduler=True),
    Case("paged, 64", page_size=64),
    Case("paged, 64, e4m3", page_size=64, cache="e4m3"),
    Case("paged, 64, int8", page_size=64, cache="int8"),
    Case("paged, 256", page_size=256),
    Case("paged, 256, e4m3", page_size=256, cache="e4m3"),
    Case("paged, 16, e4m3", page_size=16, cache="e4m3"),
    Case("paged, 64, head_dim 64", 64, 64, page_size=64),
    Case("paged, 64, head_dim 64, e4m3", 64, 64, page_size=64, cache="e4m3"),
]


def skewed_lengths(total, seed=4):
    """Lengths between 128 and half of `total`, log-uniform: many short sequences, most tokens in few."""
    chance, lengths = random.Random(seed), []
    while sum(lengths) < total:
        length = round(128 * (total / 256) ** chance.random())
        lengths.append(min(length, total - sum(lengths)))
    return lengths


def visible_keys(query, length, causal, window):
    """The visible key range [begin, end)."""
    end = query + 1 if causal or window > 0 else length
    return max(0, end - window) if window > 0 else 0, end


def pairs_kept(length, causal, window):
    if not causal and window == 0:
        return length * length
    width = min(window, length) if window > 0 else length
    return width * (width + 1) // 2 + (length - width) * width


def pairs_in_tiles(length, causal, window, rows, columns):
    pairs = 0
    for first in range(0, length, rows):
        begin = visible_keys(first, length, causal, window)[0]
        end = visible_keys(min(first + rows, length) - 1, length, causal, window)[1]
        pairs += rows * columns * (-(-end // columns) - begin // columns)
    return pairs


class Call(ctypes.Structure):
    """Must match attention_call in attention_features_library.cu."""

    _fields_ = (
        [(name, ctypes.c_void_p) for name in ("q", "k", "v", "out", "lse2", "sinks", "starts")]
        + [(name, ctypes.c_void_p) for name in ("block_table", "seqused_k", "k_scales", "v_scales", "stream")]
        + [(name, ctypes.c_int) for name in ("sequences", "batch", "queries", "keys", "heads", "kv_heads")]
        + [(name, ctypes.c_int) for name in ("dynamic_scheduler", "window_left")]
        + [(name, ctypes.c_int) for name in ("page_size", "pages", "max_blocks_per_seq")]
        + [(name, ctypes.c_float) for name in ("cap", "scale")]
    )


class Library:
    """The functions of attention_features_library.cu."""

    def __init__(self, path):
        library = ctypes.CDLL(str(path))
        self.name = path.stem
        self._forward = library.imbrex_attention_features_forward
        self._forward.restype = ctypes.c_int
        self._forward.argtypes = [ctypes.c_char_p, ctypes.POINTER(Call)]
        self._last_error = library.imbrex_attention_features_last_error
        self._last_error.restype = ctypes.c_char_p
        library.imbrex_attention_features.restype = ctypes.c_char_p
        lines = [line.split() for line in library.imbrex_attention_features().decode().splitlines()]
        self.tiles = {name: (int(rows), int(columns)) for name, rows, columns in lines}

    def forward(self, variant, call):
        if self._forward(variant.encode(), ctypes.byref(call)) != 0:
            raise RuntimeError(f"{variant}: {self._last_error().decode()}")


class Problem:
    """The tensors of a case: a batch of equal lengths, or varlen sequences."""

    def __init__(self, torch, case, causal, lengths, heads, cap=CAP):
        self.torch, self.case, self.causal, self.lengths, self.cap = torch, case, causal, lengths, cap
        kv_heads = heads // case.q_heads_per_kv_head
        batch, rows = (1, sum(lengths)) if case.packed else (len(lengths), lengths[0])
        self.q = self._random(batch, rows, heads, case.head_dim)
        self.k = self._random(batch, rows, kv_heads, case.head_dim)
        self.v = self._random(batch, rows, kv_heads, case.head_dim_v)
        self.sinks = torch.randn(heads, device="cuda") if case.sinks else None
        starts = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
        self.starts = torch.tensor(starts, dtype=torch.int32, device="cuda") if case.packed else None
        self.scale = case.head_dim**-0.5
        self.paged = self._pages() if case.page_size > 0 else None

    def _pages(self):
        """Block table, lengths, K and V in pages, and their scales. K and V become what the cache holds."""
        torch, size = self.torch, self.case.page_size
        batch, rows = self.k.shape[:2]
        blocks = -(-rows // size)
        order = torch.randperm(batch * blocks, device="cuda")
        table = order.to(torch.int32).reshape(batch, blocks).contiguous()
        used = torch.full((batch,), rows, dtype=torch.int32, device="cuda")
        stored, scales = zip(*(self._quantised(tensor) for tensor in (self.k, self.v)))
        pages = []
        for tensor in stored:
            bits = tensor.view(torch.int8) if tensor.element_size() == 1 else tensor
            padded = torch.zeros(batch, blocks * size, *bits.shape[2:], dtype=bits.dtype, device="cuda")
            padded[:, :rows] = bits
            page = torch.empty(batch * blocks, size, *bits.shape[2:], dtype=bits.dtype, device="cuda")
            page[order] = padded.reshape(page.shape)
            pages.append(page)
        if self.case.cache:
            self.k, self.v = (tensor.float() * scale[:, None] for tensor, scale in zip(stored, scales))
        return (*pages, table, used, *scales)

    def _quantised(self, tensor):
        """The elements of the cache, and one scale per head."""
        torch = self.torch
        if not self.case.cache:
            return tensor, torch.ones(tensor.shape[2], device="cuda")
        largest = tensor.float().abs().amax(dim=(0, 1, 3))
        if self.case.cache == "int8":
            scale = largest / 127
            return (tensor.float() / scale[:, None]).round().to(torch.int8), scale
        scale = largest / 448
        return (tensor.float() / scale[:, None]).to(torch.float8_e4m3fn), scale

    def _random(self, *shape):
        return self.torch.randn(*shape, device="cuda").to(self.torch.bfloat16)

    @property
    def flop_per_pair(self):
        return 2 * (self.case.head_dim + self.case.head_dim_v) * self.q.shape[2]

    @property
    def flop(self):
        return self.flop_per_pair * sum(pairs_kept(length, self.causal, self.case.window) for length in self.lengths)

    def flop_in_tiles(self, tile):
        pairs = (pairs_in_tiles(length, self.causal, self.case.window, *tile) for length in self.lengths)
        return self.flop_per_pair * sum(pairs)

    def outputs(self):
        """O and LSE buffers, filled with NaN."""
        batch, rows, heads, _ = self.q.shape
        out = self.torch.full((batch, rows, heads, self.case.head_dim_v), math.nan, device="cuda")
        return out.to(self.torch.bfloat16), self.torch.full((batch, heads, rows), math.nan, device="cuda")

    def ours(self, library, out, lse2):
        batch, rows, heads, _ = self.q.shape
        k, v, *paging = self.paged or (self.k, self.v, None, None, None, None)
        tensors = (self.q, k, v, out, lse2, self.sinks, self.starts, *paging)
        call = Call(
            *(None if tensor is None else tensor.data_ptr() for tensor in tensors),
            stream=None,
            sequences=len(self.lengths),
            batch=batch,
            queries=rows,
            keys=rows,
            heads=heads,
            kv_heads=self.k.shape[2],
            dynamic_scheduler=self.case.dynamic_scheduler,
            window_left=self.case.window - 1,
            page_size=self.case.page_size,
            pages=k.shape[0],
            max_blocks_per_seq=k.shape[0] // batch,
            cap=self.cap,
            scale=self.scale,
        )
        variant = self.case.variant(self.causal)

        def run(alive=tensors):
            call.stream = self.torch.cuda.current_stream().cuda_stream
            library.forward(variant, call)
            return alive[3]

        return run

    def peers(self):
        """The peers that may support the case, by name."""
        if self.case.capped or self.case.sinks or self.case.dynamic_scheduler or self.paged:
            return {}
        able = {FLASH_2: self._flash_2}
        if not self.case.packed and self.case.window == 0:
            able[CUDNN] = self._cudnn
        return able

    def _cudnn(self):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        attend = self.torch.nn.functional.scaled_dot_product_attention
        by_head = [tensor.transpose(1, 2) for tensor in (self.q, self.k, self.v)]
        shared = self.case.q_heads_per_kv_head > 1
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return attend(*by_head, is_causal=self.causal, scale=self.scale, enable_gqa=shared).transpose(1, 2)

    def _flash_2(self):
        tensors = [self.q, self.k, self.v]
        if self.case.packed:
            tensors = [tensor[0] for tensor in tensors]
        window = {"window_size_left": self.case.window - 1, "window_size_right": 0} if self.case.window > 0 else {}
        longest = max(self.lengths)
        causal = self.causal or self.case.window > 0
        attend = self.torch.ops.aten._flash_attention_forward
        found = attend(
            *tensors, self.starts, self.starts, longest, longest, 0.0, causal, False, scale=self.scale, **window
        )
        return found[0][None] if self.case.packed else found[0]

    def in_float64(self):
        """O and the base-2 LSE."""
        torch = self.torch
        q, k, v = (tensor.transpose(1, 2).double() for tensor in (self.q, self.k, self.v))
        k, v = (tensor.repeat_interleave(self.case.q_heads_per_kv_head, dim=1) for tensor in (k, v))
        scores = q @ k.transpose(2, 3) * self.scale
        if self.case.capped:
            scores = self.cap * torch.tanh(scores / self.cap)
        rows = scores.shape[2]
        ones = torch.ones(rows, rows, dtype=torch.bool, device="cuda")
        seen = ones.tril() if self.causal or self.case.window > 0 else ones
        if self.case.window > 0:
            seen = seen & ones.triu(1 - self.case.window)
        if self.case.packed:
            owner = torch.repeat_interleave(
                torch.arange(len(self.lengths), device="cuda"), torch.tensor(self.lengths, device="cuda")
            )
            seen = seen & (owner[:, None] == owner[None, :])
        scores.masked_fill_(~seen, -math.inf)
        logarithms = torch.logsumexp(scores, dim=3)
        if self.case.sinks:
            logarithms = torch.logaddexp(logarithms, self.sinks.double()[None, :, None])
        out = torch.exp(scores - logarithms[..., None]) @ v
        return out.transpose(1, 2), logarithms * math.log2(math.e)


class Bench:
    def __init__(self, torch, libraries, cases, rounds, seconds):
        self.torch, self.libraries, self.cases = torch, libraries, cases
        self.rounds, self.seconds = rounds, seconds
        self.faults = 0
        self.unfit = set()
        torch.manual_seed(1)

    def _able(self, case, causal):
        """Libraries that have the case and passed its check."""
        having = [library for library in self.libraries if case.variant(causal) in library.tiles]
        return [library for library in having if (library, case, causal) not in self.unfit]

    def _title(self, library):
        return "Imbrex" if len(self.libraries) == 1 else f"Imbrex {library.name}"

    def check_small(self):
        """Each case against float64, with lengths that no tile divides. Cases that are wrong are skipped afterwards."""
        report = Report("attention forward, bf16, small problems, relative error against float64", "1e-3")
        for case in self.cases:
            for causal in (False, True):
                lengths = [333, 1, 64, 650] if case.packed else [650, 650]
                small = case._replace(window=case.window // 8)
                # A small cap, so that it affects the scores.
                problem = Problem(self.torch, small, causal, lengths, 4, cap=2.0)
                right, right_log2 = problem.in_float64()
                errors = {}
                for library in self._able(case, causal):
                    out, lse2 = problem.outputs()
                    problem.ours(library, out, lse2)()
                    error = relative_difference(out, right)
                    log2_error = (lse2.double() - right_log2).abs().max().item()
                    allowed_log2_error = LARGEST_LOG2_ERROR + (problem.cap * TANH_ERROR * math.log2(math.e) if case.capped else 0)
                    if not (error <= LARGEST_ERROR and log2_error <= allowed_log2_error):
                        self.faults += 1
                        self.unfit.add((library, case, causal))
                        name = f"{case.name}, {self._title(library)}, {'causal' if causal else 'full'}"
                        print(f"WRONG: {name}: error {error:.2g}, LSE error {log2_error:.2g}", flush=True)
                    errors[self._title(library)] = error * 1e3
                for name, run in problem.peers().items():
                    try:
                        errors[name] = relative_difference(run(), right) * 1e3
                    except RuntimeError:
                        continue
                report.add(f"{case.name}, {'causal' if causal else 'full'}", errors)
        print(report.text(), flush=True)
        return report

    def measure(self, size, causal):
        batch, length = size
        name = f"{batch} x {length}, {'causal, and windows' if causal else 'full'}"
        report = Report(f"attention forward, bf16, {name}", "TFLOP/s")
        stream = self.torch.cuda.Stream()
        self.torch.cuda.synchronize()
        with self.torch.cuda.stream(stream):
            self._measure(size, causal, stream, report)
        report.notes.append("clocks: " + clocks())
        print(report.text(), flush=True)
        return report

    def _measure(self, size, causal, stream, report):
        batch, length = size
        problems, contestants = {}, {}
        for case in self.cases:
            if case.window > 0 and not causal or case.packed and batch > 1:
                continue
            own = case.length or length
            lengths = skewed_lengths(length) if case.packed else [own] * (batch * length // own)
            problem = problems[case] = Problem(self.torch, case, causal, lengths, case.heads)
            for library in self._able(case, causal):
                contestants[case, self._title(library)] = problem.ours(library, *problem.outputs())
            for name, run in problem.peers().items():
                try:
                    run()
                    contestants[case, name] = run
                except RuntimeError as fault:
                    report.notes.append(f"{case.name}: {name} is skipped: {str(fault).splitlines()[0]}")
            if case.packed and not case.dynamic_scheduler:
                report.notes.append(f"varlen lengths: {' '.join(map(str, lengths))}")
        repeats = {key: repeats_for(problems[key[0]].flop) for key in contestants}
        # The baseline is measured twice, apart: their difference is the noise of the run.
        first = (PLAIN, self._title(self.libraries[0]))
        again = {(PLAIN, "again"): contestants[first]} if first in contestants else {}
        repeats[PLAIN, "again"] = repeats.get(first, 1)
        took, rounds = take_turns(
            self.torch, {**contestants, **again}, repeats, stream, report.notes, self.rounds, self.seconds
        )
        report.notes.append(f"{rounds} rounds")
        plain = {"plain": problems[PLAIN].flop / took[first] * 1e-9} if again else {}
        for case, problem in problems.items():
            values = dict(plain)
            for (whose, title), time in took.items():
                if whose != case:
                    continue
                values[title] = problem.flop / time * 1e-9
                for library in self._able(case, causal):
                    if title == self._title(library):
                        tile = library.tiles[case.variant(causal)]
                        values[f"{title}, in whole tiles"] = problem.flop_in_tiles(tile) / time * 1e-9
            report.add(case.name, values)


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    usual = str(usual_library("attention_features_library"))
    parser.add_argument("--library", metavar="FILES", default=usual, help="libraries, comma-separated (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="output file for bench/plot.py")
    parser.add_argument("--cases", metavar="NAMES", default="*", help="comma-separated, with wildcards; see --list")
    parser.add_argument("--rounds", type=int, default=40, help="at most, at each size (%(default)s)")
    parser.add_argument("--seconds", type=float, default=4, help="at most, at each size (%(default)s)")
    parser.add_argument("--list", action="store_true", help="print the cases, and exit")
    return parser.parse_args(words)


def main(words):
    chosen = parse(words)
    names = [case.name.replace(",", "") for case in CASES]
    if chosen.list:
        print(*names, sep="\n")
        return 0
    wanted = matching(names, chosen.cases, "--cases")
    cases = [case for case in CASES if case.name.replace(",", "") in wanted or case is PLAIN]
    libraries = []
    for path in map(pathlib.Path, chosen.library.split(",")):
        if not path.exists():
            sys.exit(f"--library: {path} not found; see the top of this file for how to build it")
        libraries.append(Library(path.resolve()))
    bench = Bench(device_or_exit(), libraries, cases, chosen.rounds, chosen.seconds)
    reports = [bench.check_small()]
    reports = [bench.measure(size, causal) for size in SIZES for causal in (False, True)] + reports
    if chosen.json is not None:
        write_json(reports, chosen.json)
    return 1 if bench.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
