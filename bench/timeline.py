"""Draws a trace of the host world (host::launch with a trace_file) as an SVG: one row per scope and hardware unit.

    python3 bench/timeline.py trace.json timeline.svg                      the first block
    python3 bench/timeline.py trace.json timeline.svg --until 12           its first 12 microseconds

Work is grey, waits are white. The tensor core row is coloured by the scope that issued the mma.
"""

import argparse
import html
import json
import pathlib
import sys

WIDTH, LEFT, ROW, BAR, TOP = 1000, 110, 34, 22, 14
COLOURS = ["#4878cf", "#ee854a", "#6acc64", "#d65f5f"]
QUIET = "#b8b8c0"


def read(path, block):
    """The row names of a block, and its events as (row, name, begin, duration), in microseconds."""
    events = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    events = events["traceEvents"] if isinstance(events, dict) else events
    mine = [event for event in events if event.get("pid") == block]
    rows = {event["tid"]: event["args"]["name"] for event in mine if event["name"] == "thread_name"}
    if not rows:
        sys.exit(f"--block: {block} is not in {path}")
    return rows, [(event["tid"], event["name"], event["ts"], event["dur"]) for event in mine if event["ph"] == "X"]


def colour_of(name):
    """An mma has the colour of its scope; everything else is grey."""
    last = name.rsplit(" ", 1)[-1]
    return COLOURS[int(last) % len(COLOURS)] if name.startswith("mma of") and last.isdigit() else QUIET


def drawing(rows, events, until):
    end = max((begin + duration for _, _, begin, duration in events), default=1.0)
    end = min(end, until) if until else end
    scale = (WIDTH - LEFT - 10) / end
    height = TOP + ROW * len(rows) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for place, (row, name) in enumerate(sorted(rows.items())):
        y = TOP + ROW * place
        parts.append(f'<text x="8" y="{y + 16}">{html.escape(name)}</text>')
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{WIDTH - LEFT - 10}" height="{BAR}" fill="none" stroke="#dddddd"/>')
        for event_row, what, begin, duration in events:
            if event_row != row or what == "wait" or begin >= end:
                continue
            width = max((min(begin + duration, end) - begin) * scale, 0.5)
            parts.append(
                f'<rect x="{LEFT + begin * scale:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{colour_of(what)}"'
                f' stroke="white" stroke-width="0.3"><title>{html.escape(what)}</title></rect>'
            )
    y = TOP + ROW * len(rows)
    for tick in range(11):
        x = LEFT + (WIDTH - LEFT - 10) * tick / 10
        parts.append(f'<text x="{x:.0f}" y="{y + 14}" text-anchor="middle" fill="#666666">{end * tick / 10:.1f}</text>')
    parts.append(f'<text x="8" y="{y + 14}" fill="#666666">microseconds</text>')
    return "\n".join([*parts, "</svg>", ""])


def main(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", help="trace file written by host::launch")
    parser.add_argument("picture", help="the SVG file to write")
    parser.add_argument("--block", type=int, default=0, help="block of the grid (%(default)s)")
    parser.add_argument("--until", type=float, default=0, help="microseconds to draw (all)")
    chosen = parser.parse_args(words)
    rows, events = read(chosen.trace, chosen.block)
    pathlib.Path(chosen.picture).write_text(drawing(rows, events, chosen.until), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
