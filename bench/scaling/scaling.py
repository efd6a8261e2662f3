"""Draws the --json output of bench_scaling as an SVG: one panel per table, efficiency over the number of GPUs.

    bench_scaling --json scaling.json
    python3 bench/scaling/scaling.py scaling.json scaling.svg      (needs matplotlib)

All values are simulated, and every panel says so.
"""

import json
import sys
import textwrap

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as pyplot

# Colour, marker and marker size: where lines coincide, the ones behind have larger markers.
LINES = {
    "ring": ("#8a8f98", "s", 5),
    "striped": ("#2e9e6b", "^", 11),
    "zigzag": ("#1f6fb2", "o", 7),
    "best mesh": ("#c77d1e", "D", 4),
    "Ulysses": ("#8e4fb0", "v", 5),
}


def draw(axes, table):
    rows = table["rows"]
    for name, (colour, marker, size) in LINES.items():
        points = [(row["gpus"], 100 * row["schedules"][name]["efficiency"]) for row in rows if name in row["schedules"]]
        if points:
            axes.plot(*zip(*points), label=name, color=colour, marker=marker, markersize=size, linewidth=1.4)
    axes.set_xscale("log", base=2)
    axes.set_xticks([row["gpus"] for row in rows], [row["gpus"] for row in rows], fontsize=8)
    axes.set_ylim(0, 105)
    axes.set_xlabel("GPUs", fontsize=9)
    axes.set_ylabel("efficiency, %, simulated", fontsize=9)
    axes.set_title(table["title"], fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", linewidth=0.4, color="#dddddd")
    axes.text(0, -0.2, textwrap.fill(table["parameters"], 105), transform=axes.transAxes, fontsize=6, va="top")


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: scaling.py scaling.json scaling.svg")
    with open(sys.argv[1], encoding="utf-8") as file:
        tables = [table for table in json.load(file) if table["rows"] and "gpus" in table["rows"][0]]
    if not tables:
        sys.exit(f"{sys.argv[1]}: no tables of several GPUs in it")
    pyplot.rcParams["svg.hashsalt"] = "imbrex"
    lines = (len(tables) + 1) // 2
    figure, panels = pyplot.subplots(lines, 2, figsize=(12, 4.4 * lines), squeeze=False)
    for axes in panels.flat[len(tables) :]:
        axes.set_visible(False)
    for axes, table in zip(panels.flat, tables):
        draw(axes, table)
    panels[0, 0].legend(fontsize=8, frameon=False, loc="lower left")
    figure.tight_layout(h_pad=2.5)
    figure.savefig(sys.argv[2], metadata={"Date": None})


main()
