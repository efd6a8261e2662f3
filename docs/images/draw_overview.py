"""Draws docs/images/overview.svg from docs/results/attention.json and docs/results/gemm.json.

    python3 docs/images/draw_overview.py            writes overview.svg beside this file
    python3 docs/images/draw_overview.py FILE       writes FILE

Three panels of bars: attention forward at head_dim 128, full and causal, beside cuDNN and FlashAttention-3; bf16 GEMM beside
cuBLAS. Needs Python 3.9 and nothing else.
"""

import html
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
RESULTS = HERE.parent / "results"

WIDTH, HEIGHT = 1120, 400
TOP, BOTTOM, LEFT, GAP = 84, 326, 56, 34
PEER, SECOND, OURS = "#b9bec7", "#7d8794", "#1f6fb2"
TEXT, FAINT, GRID = "#1f2328", "#5a636e", "#e3e6ea"


def attention_panel(reports, mask):
    """Points (label, values) of one mask at head_dim 128, in the order cuDNN, FlashAttention-3, Imbrex."""
    (report,) = [one for one in reports if re.search(rf"(head_dim|depth) 128, {mask}$", one["title"])]
    points = []
    for row in report["rows"]:
        values = row["values"]
        length = int(re.match(r"\d+ x (\d+)", row["problem"])[1]) // 1024
        points.append((f"{length}k", [values["cuDNN"], values["FlashAttention-3"], values["Imbrex"]]))
    return points


def gemm_panel(reports):
    """Points (label, values) of bf16, sustained, in the order cuBLAS, Imbrex."""
    (report,) = [one for one in reports if re.search(r"^bf16, A and B.*, sustained$", one["title"])]
    points = []
    for row in report["rows"]:
        m, n, k = row["problem"].split(" x ")
        label = f"{m}\ncubed" if m == n == k else f"{m} x\n{n} x\n{k}"
        points.append((label, [row["values"]["cuBLAS"], row["values"]["Imbrex"]]))
    return points


class Drawing:
    def __init__(self):
        self.parts = []

    def text(self, x, y, words, size=12, anchor="middle", fill=TEXT, weight="normal"):
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}" '
            f'font-weight="{weight}">{html.escape(words)}</text>'
        )

    def bar(self, x, y, width, height, fill, title):
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}">'
            f"<title>{html.escape(title)}</title></rect>"
        )

    def line(self, x1, y, x2, stroke):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y:.1f}" x2="{x2:.1f}" y2="{y:.1f}" stroke="{stroke}"/>')

    def svg(self):
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
            'font-family="Helvetica, Arial, DejaVu Sans, sans-serif" role="img">\n'
            "<title>Imbrex beside cuDNN, FlashAttention-3 and cuBLAS on an H200, TFLOP/s</title>\n"
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n'
        )
        return head + "\n".join(self.parts) + "\n</svg>\n"


def draw_panel(drawing, left, width, title, points, names, colours, top_value):
    """Bars of the points from `left` on. The axis is drawn from 0."""

    def height(value):
        return (BOTTOM - TOP) * value / top_value

    drawing.text(left, 30, title, size=14, anchor="start", weight="bold")
    x = left
    for name, colour in zip(names, colours):
        drawing.bar(x, 42, 11, 11, colour, name)
        drawing.text(x + 16, 52, name, size=12, anchor="start", fill=FAINT)
        x += 30 + 7 * len(name)
    for value in range(0, int(top_value) + 1, 200):
        drawing.line(left, BOTTOM - height(value), left + width, "#9aa2ac" if value == 0 else GRID)
        drawing.text(left - 6, BOTTOM - height(value) + 4, str(value), size=11, anchor="end", fill=FAINT)
    slot = width / len(points)
    bar = 0.86 * slot / len(names)
    for place, (label, values) in enumerate(points):
        begin = left + slot * place + 0.07 * slot
        for which, (name, value) in enumerate(zip(names, values)):
            x = begin + bar * which
            y = BOTTOM - height(value)
            drawing.bar(x, y, bar - 1.5, height(value), colours[which], f"{name}, {label}: {value:.0f} TFLOP/s".replace("\n", " "))
        ours, middle = values[-1], begin + bar * (len(names) - 0.5) - 0.75
        drawing.text(middle, BOTTOM - height(ours) - 5, f"{ours:.0f}", size=11, fill=OURS, weight="bold")
        for line, words in enumerate(label.split("\n")):
            drawing.text(left + slot * (place + 0.5), BOTTOM + 16 + 13 * line, words, size=11, fill=TEXT)


def picture(attention, gemm):
    drawing = Drawing()
    panels = [
        ("Attention forward, head_dim 128, full", attention_panel(attention, "full"), 3),
        ("Attention forward, head_dim 128, causal", attention_panel(attention, "causal"), 3),
        ("GEMM, bf16, M x N x K", gemm_panel(gemm), 2),
    ]
    highest = max(value for _, points, _ in panels for _, values in points for value in values)
    top_value = -(-highest // 200) * 200
    width = (WIDTH - LEFT - 14 - GAP * 2 - 2 * 22) / 3
    for place, (title, points, count) in enumerate(panels):
        names = ["cuDNN", "FlashAttention-3", "Imbrex"] if count == 3 else ["cuBLAS", "Imbrex"]
        colours = [PEER, SECOND, OURS] if count == 3 else [PEER, OURS]
        draw_panel(drawing, LEFT + place * (width + GAP + 22), width, title, points, names, colours, top_value)
    drawing.text(LEFT, HEIGHT - 10, "NVIDIA H200, bf16, TFLOP/s (higher is better), medians; contestants alternate in one sustained "
                 "run. Attention: batch x seqlen = 16,384, seqlen below the bars.", size=12, anchor="start", fill=FAINT)
    return drawing.svg()


def main(words):
    if len(words) > 1:
        sys.exit("usage: draw_overview.py [FILE]")
    attention = json.loads((RESULTS / "attention.json").read_text(encoding="utf-8"))
    gemm = json.loads((RESULTS / "gemm.json").read_text(encoding="utf-8"))
    target = pathlib.Path(words[0]) if words else HERE / "overview.svg"
    target.write_text(picture(attention, gemm), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
