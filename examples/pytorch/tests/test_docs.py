"""The Python of docs/pytorch.md runs from top to bottom, as a reader would run it."""

import pathlib
import re

import pytest

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "pytorch.md"


def blocks():
    text = PAGE.read_text(encoding="utf-8")
    return [(text[: found.start()].count("\n") + 2, found.group(1)) for found in re.finditer(r"^```python\n(.*?)^```", text, re.M | re.S)]


def test_page():
    names = {}
    assert len(blocks()) >= 5
    for line, block in blocks():
        try:
            exec(compile("\n" * (line - 1) + block, str(PAGE), "exec"), names)
        except ModuleNotFoundError as missing:
            if missing.name not in ("transformers",):
                raise
            pytest.skip(f"{missing.name} is not installed")
