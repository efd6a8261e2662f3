"""Draws the --json output of a benchmark as an SVG: one panel per table, one bar per contestant.

    python3 bench/plot.py results.json results.svg      (needs matplotlib)
"""

import json
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as pyplot

COLOURS = ["#8a8f98", "#1f6fb2", "#2e9e6b", "#c77d1e", "#8e4fb0"]


def draw(axes, table):
    rows = table["rows"]
    names = []
    for row in rows:
        names += [name for name in row["values"] if name not in names]
    width = 0.8 / len(names)
    for which, name in enumerate(names):
        places = [i + (which - (len(names) - 1) / 2) * width for i, row in enumerate(rows) if name in row["values"]]
        heights = [row["values"][name] for row in rows if name in row["values"]]
        bars = axes.bar(places, heights, width * 0.94, label=name, color=COLOURS[which % len(COLOURS)])
        axes.bar_label(bars, fmt=lambda v: f"{v:.0f}" if v >= 100 else f"{v:.2f}", fontsize=7, padding=2)
    axes.set_xticks(range(len(rows)), [row["problem"] for row in rows], fontsize=8, rotation=12)
    axes.set_title(table["title"], fontsize=10)
    axes.set_ylabel(table["unit"], fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(y=0.12)
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: plot.py results.json results.svg")
    with open(sys.argv[1], encoding="utf-8") as file:
        tables = [table for table in json.load(file) if table["rows"]]
    if not tables:
        sys.exit(f"{sys.argv[1]}: no results in it")
    pyplot.rcParams["svg.hashsalt"] = "imbrex"
    figure, panels = pyplot.subplots(len(tables), 1, figsize=(10, 3.2 * len(tables)), squeeze=False)
    for axes, table in zip(panels[:, 0], tables):
        draw(axes, table)
    figure.tight_layout()
    figure.savefig(sys.argv[2], metadata={"Date": None})


main()
