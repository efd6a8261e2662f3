"""What attention's benchmarks have in common: contestants that take turns on the device, tables of their speeds."""

import fnmatch
import json
import pathlib
import statistics
import subprocess
import sys
import time

CUDNN, FLASH_2 = "cuDNN", "FlashAttention-2"

# Rounding the weights and the result to bf16 gives 0.002 to 0.003, and two such results differ by 1.4 times that.
LARGEST_ERROR = 0.006
LARGEST_DIFFERENCE = 0.008
LARGEST_LOG2_ERROR = 0.001


def matching(names, patterns, option):
    """Those that match any of the patterns, which are separated by commas; each pattern must match one."""
    chosen = []
    for pattern in patterns.split(","):
        found = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
        if not found:
            sys.exit(f"{option}: {pattern} matches none of {', '.join(names)}")
        chosen += found
    return [name for name in names if name in chosen]


class Report:
    """A table, printed and written as by bench/report.hpp: the first contestant is the peer that the others are compared with."""

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
        told = subprocess.run(["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True, timeout=20)
        return told.stdout.strip() or "unknown"
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"


def usual_library(name):
    """Where cmake puts the library that is built of a .cu beside this file."""
    root = pathlib.Path(__file__).resolve().parents[2]
    return root / "build" / "release" / "bench" / f"libbench_kernels_{name}.so"


def device_or_exit():
    """PyTorch, once it has told what it runs on. Where there is nothing to measure, that is no failure."""
    try:
        import torch
    except ImportError:
        print("skipped: PyTorch, which has the peers, is not installed")
        sys.exit(0)
    if not torch.cuda.is_available():
        print("skipped: there is no GPU to measure on")
        sys.exit(0)
    device = torch.cuda.get_device_properties(0)
    print(f"{device.name}, {device.multi_processor_count} multiprocessors, PyTorch {torch.__version__}, ", end="")
    print(f"CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}; clocks before: {clocks()}")
    return torch


def relative_difference(x, right):
    """Root mean square; NaN where there is one."""
    return ((x.to(right.dtype) - right).norm() / right.norm()).item()


def repeats_for(flop):
    """Launches that take about a millisecond, at 500 TFLOP/s: what starting a graph costs is little beside them."""
    return max(1, round(500e9 / flop))


def take_turns(torch, contestants, repeats, stream, notes, most_rounds, seconds, pause=0.0):
    """Median milliseconds of each contestant, a function, and the number of rounds. `repeats` says how often each is launched
    in a turn, `pause` how long the device rests before it, in seconds."""
    replays, kept = {}, []
    for name, run in contestants.items():

        def several(run=run, times=repeats[name]):
            for _ in range(times):
                result = run()
            return result

        replays[name] = _captured(torch, several, stream, kept)
        if replays[name] is None:
            notes.append(f"{name} could not be captured, and is launched by itself")
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
    """Replays a graph of the run; None where there cannot be one. What it writes to must stay alive, and is kept."""
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
