"""Shared by the attention benchmarks: interleaved timing of contestants, and result tables."""

import fnmatch
import json
import pathlib
import statistics
import subprocess
import sys
import time

CUDNN, FLASH_2 = "cuDNN", "FlashAttention-2"

# Rounding P and O to bf16 gives 0.002 to 0.003, and two such results differ by 1.4 times that.
LARGEST_ERROR = 0.006
LARGEST_DIFFERENCE = 0.008
LARGEST_LOG2_ERROR = 0.001


def matching(names, patterns, option):
    """Names that match any of the comma-separated patterns; each pattern must match at least one."""
    chosen = []
    for pattern in patterns.split(","):
        found = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
        if not found:
            sys.exit(f"{option}: {pattern} matches none of {', '.join(names)}")
        chosen += found
    return [name for name in names if name in chosen]


class Report:
    """A table in the format of bench/report.hpp: the first contestant is the baseline of the ratios."""

    def __init__(self, title, unit):
        self.title, self.unit, self.rows, self.notes = title, unit, [], []

    def add(self, problem, values):
        self.rows.append((problem, values))

    def text(self):
        lines = ["", f"### {self.title} ({self.unit})", ""]
        if self.rows:
            names = list(dict.fromkeys(name for _, values in self.rows for name in values))
            lines += ["| problem | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
            for problem, values in self.rows:
                cells = [self._cell(values, name, names[0]) for name in names]
                lines.append(f"| {problem} | " + " | ".join(cells) + " |")
            lines.append("")
        return "\n".join(lines + self.notes)

    @staticmethod
    def _cell(values, name, peer):
        if name not in values:
            return ""
        number = values[name]
        digits = 0 if number >= 100 else 1 if number >= 10 else 2
        ratio = f" ({number / values[peer]:.2f}x)" if name != peer and peer in values else ""
        return f"{number:.{digits}f}{ratio}"

    def json(self):
        rows = [
            {"problem": problem, "values": {name: round(number, 6) for name, number in values.items()}}
            for problem, values in self.rows
        ]
        return json.dumps({"title": self.title, "unit": self.unit, "rows": rows, "notes": self.notes})


def write_json(reports, path):
    lines = ",\n".join("  " + report.json() for report in reports)
    pathlib.Path(path).write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def clocks():
    query = "--query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu"
    try:
        output = subprocess.run(["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True, timeout=20)
        return output.stdout.strip() or "unknown"
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"


def usual_library(name):
    """The default path of a library built from a .cu in this folder."""
    root = pathlib.Path(__file__).resolve().parents[2]
    return root / "build" / "release" / "bench" / f"libbench_kernels_{name}.so"


def device_or_exit():
    """Imports PyTorch and prints the device; exits with status 0 without PyTorch or a GPU."""
    try:
        import torch
    except ImportError:
        print("skipped: PyTorch (the peers) is not installed")
        sys.exit(0)
    if not torch.cuda.is_available():
        print("skipped: no GPU")
        sys.exit(0)
    device = torch.cuda.get_device_properties(0)
    print(f"{device.name}, {device.multi_processor_count} SMs, PyTorch {torch.__version__}, ", end="")
    print(f"CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}; clocks before: {clocks()}")
    return torch


def relative_difference(x, right):
    """Relative RMS difference; NaN if either has a NaN."""
    return ((x.to(right.dtype) - right).norm() / right.norm()).item()


def repeats_for(flop):
    """Number of launches for about a millisecond at 500 TFLOP/s, so that the graph launch cost is small."""
    return max(1, round(500e9 / flop))


def take_turns(torch, contestants, repeats, stream, notes, most_rounds, seconds, pause=0.0):
    """Median milliseconds of each contestant (a function), and the number of rounds. `repeats` is the number of launches
    per measurement, `pause` the sleep before it, in seconds."""
    replays, kept = {}, []
    for name, run in contestants.items():

        def several(run=run, times=repeats[name]):
            for _ in range(times):
                result = run()
            return result

        replays[name] = _captured(torch, several, stream, kept)
        if replays[name] is None:
            notes.append(f"{name} could not be captured and is launched without a graph")
            replays[name] = several
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def one_round():
        took = {}
        for name, replay in replays.items():
            time.sleep(pause)
            begin.record()
            replay()
            end.record()
            end.synchronize()
            took[name] = begin.elapsed_time(end) / repeats[name]
        return took

    for _ in range(5):
        warm = one_round()
    rounds = int(seconds * 1e3 / sum(repeats[name] * took for name, took in warm.items()))
    rounds = max(5, min(rounds, most_rounds))
    times = [one_round() for _ in range(rounds)]
    return {name: statistics.median(took[name] for took in times) for name in replays}, rounds


def _captured(torch, run, stream, kept):
    """The replay function of a captured graph; None if capture fails. Outputs are kept alive in `kept`."""
    graph = torch.cuda.CUDAGraph()
    stream.synchronize()
    graph.capture_begin(capture_error_mode="thread_local")
    failed = False
    try:
        kept.append(run())
    except RuntimeError:
        failed = True
    try:
        graph.capture_end()
    except RuntimeError:
        failed = True
    return None if failed else graph.replay
