"""Draws docs/images/moe_routing.svg: the routing of a mixture-of-experts layer, from tokens to sorted rows and back.

    python3 docs/images/draw_moe_routing.py            writes moe_routing.svg beside this file
    python3 docs/images/draw_moe_routing.py FILE       writes FILE

Six tokens choose two of four experts each; the rows of an expert are padded to tiles of four. Needs Python 3.9 and
nothing else.
"""

import html
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent

EXPERTS, TILE_ROWS = 4, 4
CHOICES = [(2, 0), (0, 3), (2, 0), (2, 0), (0, 3), (2, 3)]  # of each token, by descending score

COLOURS = ["#1f6fb2", "#b9bec7", "#2a9d63", "#c7772e"]
TEXT, FAINT, EMPTY = "#1f2328", "#5a636e", "#eceef1"
WIDTH, HEIGHT, TOP = 930, 466, 78
ROW, TILE_GAP = 18, 12
TOKENS, SORTED, EXPERT, RESULT, OUT = 30, 300, 424, 548, 790  # left edges of the columns
CELL = 96


def sorted_rows():
    """The rows in order, as (expert, token or None, choice of the token), padded to whole tiles."""
    rows = []
    for expert in range(EXPERTS):
        own = [(expert, token, mine.index(expert)) for token, mine in enumerate(CHOICES) if expert in mine]
        rows += own + [(expert, None, None)] * (-len(own) % TILE_ROWS)
    return rows


class Drawing:
    def __init__(self):
        self.parts = []

    def text(self, x, y, words, size=12, anchor="middle", fill=TEXT, weight="normal"):
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}" '
            f'font-weight="{weight}">{html.escape(words)}</text>'
        )

    def cell(self, x, y, width, words, fill, height=ROW - 3, colour="white"):
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2" fill="{fill}"/>'
        )
        self.text(x + width / 2, y + height / 2 + 4, words, size=11, fill=colour)

    def curve(self, x1, y1, x2, y2, stroke):
        middle = (x1 + x2) / 2
        self.parts.append(
            f'<path d="M{x1:.1f} {y1:.1f} C{middle:.1f} {y1:.1f} {middle:.1f} {y2:.1f} {x2:.1f} {y2:.1f}" fill="none" '
            f'stroke="{stroke}" stroke-width="1.4" stroke-opacity="0.75"/>'
        )

    def svg(self):
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
            'font-family="Helvetica, Arial, DejaVu Sans, sans-serif" role="img">\n'
            "<title>Tokens, the rows sorted by expert and padded to tiles, and the weighted sum of a token's rows</title>\n"
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n'
        )
        return head + "\n".join(self.parts) + "\n</svg>\n"


def picture():
    drawing = Drawing()
    for x, title, words in (
        (TOKENS, "tokens", "x, expert_of_choice"),
        (SORTED, "sorted rows", "token_of_row"),
        (EXPERT, "tiles", "expert_of_tile"),
        (RESULT, "results", "y, a row per choice"),
        (OUT, "combine", "out, a row per token"),
    ):
        drawing.text(x, 34, title, size=14, anchor="start", weight="bold")
        drawing.text(x, 52, words, size=11, anchor="start", fill=FAINT)

    rows = sorted_rows()
    top_of_row = [TOP + number * ROW + number // TILE_ROWS * TILE_GAP for number in range(len(rows))]
    middle_of_row = [top + (ROW - 3) / 2 for top in top_of_row]
    height = top_of_row[-1] + ROW - TOP
    spacing = height / len(CHOICES)

    def token_top(token):
        return TOP + spacing * (token + 0.5) - ROW

    for number, (expert, token, choice) in enumerate(rows):
        if token is None:
            continue
        y = middle_of_row[number]
        drawing.curve(TOKENS + CELL + 4, token_top(token) + ROW * choice + (ROW - 3) / 2, SORTED - 4, y, COLOURS[expert])
        drawing.curve(RESULT + CELL + 4, y, OUT - 4, token_top(token) + ROW - 1, COLOURS[expert])
    for token, mine in enumerate(CHOICES):
        top = token_top(token)
        drawing.cell(TOKENS, top, 50, f"token {token}", EMPTY, 2 * ROW - 3, TEXT)
        for choice, expert in enumerate(mine):
            drawing.cell(TOKENS + 53, top + ROW * choice, CELL - 53, f"to {expert}", COLOURS[expert])
        drawing.cell(OUT, top, CELL, f"token {token}", EMPTY, 2 * ROW - 3, TEXT)
    for number, (expert, token, _) in enumerate(rows):
        fill, colour = (EMPTY, FAINT) if token is None else (COLOURS[expert], "white")
        words = "no token" if token is None else f"token {token}"
        drawing.cell(SORTED, top_of_row[number], CELL, words, fill, colour=colour)
        drawing.cell(RESULT, top_of_row[number], CELL, "" if token is None else f"row {number}", fill)
    for tile in range(len(rows) // TILE_ROWS):
        expert = rows[tile * TILE_ROWS][0]
        top = top_of_row[tile * TILE_ROWS]
        drawing.cell(EXPERT, top, 96, f"B of expert {expert}", COLOURS[expert], TILE_ROWS * ROW - 3)

    empty = [str(expert) for expert in range(EXPERTS) if all(expert not in mine for mine in CHOICES)]
    drawing.text(TOKENS, HEIGHT - 38, "A tile belongs to one expert; its padding rows have no token, but cost time. Expert "
                 f"{', '.join(empty)} was not chosen and has no tile.", size=12, anchor="start", fill=FAINT)  # fmt: skip
    drawing.text(TOKENS, HEIGHT - 18, "The rows of an expert are in the order of the tokens. combine adds the rows of a token in the "
                 "order of its choices, each times weight_of_choice.", size=12, anchor="start", fill=FAINT)  # fmt: skip
    return drawing.svg()


def main(words):
    if len(words) > 1:
        sys.exit("usage: draw_moe_routing.py [FILE]")
    target = pathlib.Path(words[0]) if words else HERE / "moe_routing.svg"
    target.write_text(picture(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
