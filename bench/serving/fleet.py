"""Draws --json outputs of bench_fleet as an SVG.

    bench_fleet simulate --costs costs.json --rate 20 --replicas 2,3,4,6,8 --json load.json
    bench_fleet simulate --costs costs.json --rate 5,10,20,40 --find 0.99 --json sizes.json
    python3 bench/serving/fleet.py load.json sizes.json fleet.svg      (needs matplotlib)

A file with several numbers of replicas becomes two panels: goodput and TTFT (p50 and p99) over replicas, a line per
policy. A file of --find becomes one panel: replicas over the rate. All values are simulated, and every panel says so.
"""

import json
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as pyplot

# Colour, marker and marker size: where lines coincide, the ones behind have larger markers.
LINES = {
    "round-robin": ("#8a8f98", "s", 10),
    "least-loaded": ("#2e9e6b", "^", 8),
    "prefix-hash": ("#1f6fb2", "o", 6),
    "session-hash": ("#c77d1e", "D", 4),
}


def draw_lines(axes, rows, across, value, label=True, **style):
    for name, (colour, marker, size) in LINES.items():
        points = [(row[across], value(row)) for row in rows if row["policy"] == name]
        if points:
            axes.plot(*zip(*points), label=name if label else None, color=colour, marker=marker, markersize=size,
                      linewidth=1.4, **style)


def finish(axes, across, named, title, rows):
    axes.set_xlabel(across, fontsize=9)
    axes.set_ylabel(f"{named}, simulated", fontsize=9)
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", linewidth=0.4, color="#dddddd")


def draw_load(goodput, ttft, run):
    rows = run["rows"]
    limits = f"TTFT <= {run['ttft_limit']:g} s, mean ITL <= {1e3 * run['itl_limit']:g} ms"
    draw_lines(goodput, rows, "replicas", lambda row: 100 * row["goodput"])
    goodput.set_ylim(0, 105)
    finish(goodput, "replicas", "goodput, %", f"{rows[0]['rate']:g} conversations/s; {limits}", rows)
    draw_lines(ttft, rows, "replicas", lambda row: 1e3 * row["ttft"]["p50"])
    draw_lines(ttft, rows, "replicas", lambda row: 1e3 * row["ttft"]["p99"], label=False, linestyle="--")
    ttft.set_yscale("log")
    finish(ttft, "replicas", "TTFT, ms", f"{rows[0]['rate']:g} conversations/s; solid p50, dashed p99", rows)


def draw_sizes(axes, run):
    draw_lines(axes, run["rows"], "rate", lambda row: row["replicas"])
    axes.set_ylim(0)
    title = f"replicas for {100 * run['find']:g}% within TTFT {run['ttft_limit']:g} s, ITL {1e3 * run['itl_limit']:g} ms"
    finish(axes, "conversations/s", "replicas", title, run["rows"])


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: fleet.py run.json ... fleet.svg")
    runs = []
    for path in sys.argv[1:-1]:
        with open(path, encoding="utf-8") as file:
            runs.append(json.load(file))
        if not runs[-1]["rows"]:
            sys.exit(f"{path}: no rows in it")
    pyplot.rcParams["svg.hashsalt"] = "imbrex"
    count = sum(1 if "find" in run else 2 for run in runs)
    figure, panels = pyplot.subplots(1, count, figsize=(5.2 * count, 4.2), squeeze=False)
    left = iter(panels.flat)
    for run in runs:
        if "find" in run:
            draw_sizes(next(left), run)
        else:
            draw_load(next(left), next(left), run)
    panels[0, 0].legend(fontsize=8, frameon=False)
    figure.suptitle(f"step costs: {runs[0]['model']}, {runs[0]['world']} world", fontsize=9)
    figure.tight_layout()
    figure.savefig(sys.argv[-1], metadata={"Date": None})


main()
