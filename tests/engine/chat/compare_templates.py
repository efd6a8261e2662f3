"""Renders chat templates of models with Jinja in Python and with the engine, and compares the texts.

    pip install jinja2
    cmake --build build/release --target imbrex_render_template
    python3 tests/engine/chat/compare_templates.py build/release/tests/imbrex_render_template FILE...

A file is a template (.jinja), a tokenizer_config.json, a GGUF file, or a folder of a model. What a template
refuses with raise_exception must be refused by the engine too. Exit code 1 if any text differs.
"""

import json
import struct
import subprocess
import sys
from pathlib import Path

from conversations import CASES, NOW, rendered

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9


def gguf_templates(path):
    """The templates in the metadata of a GGUF file."""
    with open(path, "rb") as file:

        def number(size):
            return int.from_bytes(file.read(size), "little")

        def text():
            return file.read(number(8)).decode(errors="replace")

        def skip(kind):
            if kind == STRING:
                file.seek(number(8), 1)
            elif kind == ARRAY:
                element, count = number(4), number(8)
                for _ in range(count if element in (STRING, ARRAY) else 0):
                    skip(element)
                file.seek(SIZES.get(element, 0) * count, 1)
            else:
                file.seek(SIZES[kind], 1)

        _, _, entries = struct.unpack("<IQQ", file.read(4 + 20)[4:])
        for _ in range(entries):
            key, kind = text(), number(4)
            if key.startswith("tokenizer.chat_template") and kind == STRING:
                yield text()
            else:
                skip(kind)


def templates_of(path):
    path = Path(path)
    if path.is_dir():
        for name in ("chat_template.jinja", "tokenizer_config.json"):
            if (path / name).exists():
                yield from templates_of(path / name)
    elif path.name == "tokenizer_config.json":
        template = json.loads(path.read_text()).get("chat_template", [])
        yield from [template] if isinstance(template, str) else (each["template"] for each in template)
    elif path.suffix == ".gguf":
        yield from gguf_templates(path)
    else:
        yield path.read_text()


def main(program, *paths):
    templates = [(path, template) for path in paths for template in templates_of(path)]
    inputs = [(path, name, template, case) for path, template in templates for name, case in CASES.items()]
    lines = "".join(
        json.dumps({"template": template, "variables": case, "now": NOW.strftime("%Y-%m-%d")}) + "\n"
        for _, _, template, case in inputs
    )
    results = subprocess.run([program], input=lines, capture_output=True, text=True, check=True).stdout.splitlines()
    different = 0
    for (path, name, template, case), line in zip(inputs, results, strict=True):
        expected, found = rendered(template, case), json.loads(line)
        may_render = "text" not in expected and not expected["error"].startswith("TemplateError")
        if expected.get("text") != found.get("text") and not may_render:
            different += 1
            print(f"{path}: {name}:\n  Python: {expected}\n  engine: {found}")
    print(f"{len(templates)} templates, {len(inputs)} texts, {different} different")
    return different > 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
