"""The Python of docs/jax.md runs from top to bottom, as a reader would run it."""

import pathlib
import re

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "jax.md"


def test_page():
    text, names = PAGE.read_text(encoding="utf-8"), {}
    blocks = list(re.finditer(r"^```python\n(.*?)^```", text, re.M | re.S))
    assert len(blocks) >= 5
    for block in blocks:
        line = text[: block.start(1)].count("\n")
        exec(compile("\n" * line + block.group(1), str(PAGE), "exec"), names)
