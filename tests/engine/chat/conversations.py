"""Conversations and an environment of Jinja as transformers sets it, for the scripts beside this file."""

import datetime
import json

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2026, 1, 31)

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "A city, as \"Paris\""},
                "days": {"type": "integer", "description": "1 to 7", "default": 1},
                "unit": {"type": "string", "enum": ["C", "F"]},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["city"],
        },
    },
}


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def call(name, arguments):
    return {"type": "function", "id": "abc123def", "function": {"name": name, "arguments": arguments}}


QUESTION = [user("Hi there!")]
TURNS = [{"role": "system", "content": "Be brief. "}, user(" What's 1<2? "), assistant("<think>\nEasy.\n</think>\n\nTrue.\n"), user("caf\u00e9 \u4e2d\u6587?")]
TOOLS = [
    user("Weather in Paris?"),
    {"role": "assistant", "content": "", "tool_calls": [call("get_weather", {"city": "Paris", "days": 2})]},
    {"role": "tool", "name": "get_weather", "tool_call_id": "abc123def", "content": '{"temp": 21.5}'},
    user("And tomorrow?"),
]
BASE = {"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True}
CASES = {
    "question": {**BASE, "messages": QUESTION},
    "turns": {**BASE, "messages": TURNS, "add_generation_prompt": True},
    "no prompt": {**BASE, "messages": TURNS[1:3], "add_generation_prompt": False},
    "no thinking": {**BASE, "messages": TURNS[:2], "enable_thinking": False, "reasoning_effort": "low"},
    "tools": {**BASE, "messages": TOOLS, "tools": [WEATHER]},
    "tools offered": {**BASE, "messages": TURNS[:2], "tools": [WEATHER, WEATHER]},
    "two questions": {**BASE, "messages": QUESTION * 2},
    "reasoning": {**BASE, "messages": [QUESTION[0], {**assistant("Yes."), "reasoning_content": "Hm."}, QUESTION[0]]},
    "parts": {**BASE, "messages": [user([{"type": "text", "text": "part one"}, {"type": "text", "text": "two"}])]},
}


class Generation(Extension):
    """{% generation %} ... {% endgeneration %}: marks what the assistant wrote; no text of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = NOW.strftime
    return made


def rendered(template, variables):
    """{"text": ...} or {"error": ...}."""
    try:
        return {"text": environment().from_string(template).render(**variables)}
    except Exception as failure:  # noqa: BLE001: any error of a template is a result
        return {"error": f"{type(failure).__name__}: {failure}"}
