"""Writes tests/engine/data/chat_templates.json: what Jinja in Python makes of the templates in tests/engine/data/chat_templates.

    pip install jinja2
    python3 tests/engine/chat/chat_templates.py
"""

import json
from pathlib import Path

from conversations import CASES, NOW, rendered

DATA = Path(__file__).parents[1] / "data"
GENERAL = ["turns"]  # for templates that show the language
OF_MODELS = ["question", "turns", "no thinking", "tools", "parts"]

results = {}
for path in sorted((DATA / "chat_templates").glob("*.jinja")):
    template = path.read_text()
    has_turns = "add_generation_prompt" in template or path.stem in ("refuses_roles", "content_parts", "xml_tools")
    results[path.stem] = {name: rendered(template, CASES[name]) for name in (OF_MODELS if has_turns else GENERAL)}
used = {name: CASES[name] for name in OF_MODELS}
lines = ",\n".join(f"{json.dumps(name)}:{json.dumps(each)}" for name, each in results.items())
(DATA / "chat_templates.json").write_text(
    f'{{"now":"{NOW:%Y-%m-%d}",\n"cases":{json.dumps(used)},\n"results":{{\n{lines}}}}}\n'
)
