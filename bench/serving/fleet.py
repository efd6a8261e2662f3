"""Charts and figures of docs/results/fleet.md.

    python3 bench/serving/fleet.py page FOLDER --bench-fleet build/release/bench/bench_fleet
    python3 bench/serving/fleet.py draw load.json sizes.json fleet.svg

page makes the page's JSON files, chart and tables from a folder of validate_fleet.sh: it copies the costs and joins
validation_*.json, simulates the load of the page, draws, and calls render_tables.py. Without FOLDER it starts from
docs/results/fleet_costs.json.

draw draws --json outputs of `bench_fleet simulate`. A file with several numbers of replicas becomes two panels: goodput and
TTFT (p50 and p99) over replicas, a line per policy. A file of --find becomes one panel: replicas over the rate. All values
are simulated, and every panel says so.

Needs matplotlib.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as pyplot
from matplotlib import ticker

RESULTS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "results"

# The load of the page, as validate_fleet.sh has it.
LOAD = """--input lognormal:512,0.8 --output lognormal:160,0.6 --turns uniform:1,3 --think exponential:3 --systems 8
    --system-tokens uniform:256,1024 --seconds 20 --ttft-limit 0.5 --itl-limit 0.03""".split()
RUNS = {
    "fleet_load.json": ["--rate", "100", "--replicas", "4,5,6,7,8,9,10,12"],
    "fleet_sizes.json": ["--rate", "25,50,100,200", "--find", "0.99"],
}

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


def finish(axes, across, named, title):
    axes.set_xlabel(across, fontsize=9)
    axes.set_ylabel(f"{named}, simulated", fontsize=9)
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", linewidth=0.4, color="#dddddd")


def draw_load(goodput, ttft, run):
    rows = run["rows"]
    rate = f"{rows[0]['rate']:g} conversations/s"
    replicas = sorted({row["replicas"] for row in rows})
    draw_lines(goodput, rows, "replicas", lambda row: 100 * row["goodput"])
    goodput.set_ylim(0, 105)
    finish(goodput, "replicas", "goodput, %",
           f"{rate}; TTFT <= {run['ttft_limit']:g} s, mean ITL <= {1e3 * run['itl_limit']:g} ms")
    draw_lines(ttft, rows, "replicas", lambda row: 1e3 * row["ttft"]["p50"])
    draw_lines(ttft, rows, "replicas", lambda row: 1e3 * row["ttft"]["p99"], label=False, linestyle="--")
    ttft.set_yscale("log")
    finish(ttft, "replicas", "TTFT, ms", f"{rate}; solid p50, dashed p99")
    for axes in (goodput, ttft):
        axes.set_xticks(replicas, replicas)


def draw_sizes(axes, run):
    rows = run["rows"]
    rates = sorted({row["rate"] for row in rows})
    draw_lines(axes, rows, "rate", lambda row: row["replicas"])
    axes.set_ylim(0)
    axes.yaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
    finish(axes, "conversations/s", "replicas",
           f"replicas for {100 * run['find']:g}% within TTFT {run['ttft_limit']:g} s, ITL {1e3 * run['itl_limit']:g} ms")


def draw(paths, picture):
    runs = []
    for path in paths:
        runs.append(json.loads(pathlib.Path(path).read_text(encoding="utf-8")))
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
    figure.savefig(picture, metadata={"Date": None})


def adopt(folder):
    """The measured files of validate_fleet.sh become files of the page."""
    names = ("light", "heavy", "calibration")
    validation = [{"trace": name, **json.loads((folder / f"validation_{name}.json").read_text())["rows"][0]}
                  for name in names]  # fmt: skip
    (RESULTS / "fleet_costs.json").write_text((folder / "costs.json").read_text())
    (RESULTS / "fleet_validation.json").write_text(json.dumps(validation, indent=1) + "\n")


def page(folder, bench_fleet):
    if folder:
        adopt(folder)
    for name, words in RUNS.items():
        subprocess.run([bench_fleet, "simulate", "--costs", RESULTS / "fleet_costs.json", *LOAD, *words,
                        "--json", RESULTS / name], check=True)  # fmt: skip
    draw([RESULTS / name for name in RUNS], RESULTS / "fleet.svg")
    subprocess.run([sys.executable, "-B", RESULTS / "render_tables.py"], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    page_parser = commands.add_parser("page", help="figures, chart and tables of docs/results/fleet.md")
    page_parser.add_argument("folder", nargs="?", type=pathlib.Path, help="folder of validate_fleet.sh")
    page_parser.add_argument("--bench-fleet", default="bench_fleet", help="the program (%(default)s)")
    draw_parser = commands.add_parser("draw", help="a chart of any simulation")
    draw_parser.add_argument("files", nargs="+", help="outputs of bench_fleet simulate --json")
    draw_parser.add_argument("picture", help="an SVG")
    chosen = parser.parse_args()
    if chosen.command == "page":
        page(chosen.folder, chosen.bench_fleet)
    else:
        draw(chosen.files, chosen.picture)


main()
