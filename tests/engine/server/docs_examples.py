"""The examples of the API's page run against a server, and the expressions of the operators' page name only metrics that it has:
python3 docs_examples.py <imbrex> <model>"""

import contextlib
import io
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

try:
    import openai  # noqa: F401
except ImportError:
    print("skipped: python3 has no package openai")
    sys.exit(77)

from served import TOOL_TEMPLATE, Server, run_tests

DOCS = pathlib.Path(__file__).resolve().parents[3] / "docs"


def examples(page):
    """(line, language, code) of each block that can be run; those that start a server are not."""
    text = (DOCS / page).read_text()
    for block in re.finditer(r"^```(sh|python)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if "imbrex serve" not in block[2]:
            yield text[:block.start()].count("\n") + 2, block[1], block[2]


def run_shell(code):
    command = ["sh", "-e", "-c", code.replace("curl ", "curl -sS --fail-with-body ")]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def run_python(code):
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(code, {})
    return output.getvalue()


def run_examples(program, model):
    if shutil.which("curl") is None:
        print("skipped: the examples in sh, curl is not there")
    seen = {"sh": 0, "python": 0}
    with tempfile.TemporaryDirectory() as folder:
        template = pathlib.Path(folder) / "template.jinja"
        template.write_text(TOOL_TEMPLATE)
        # Greedy, so that each run gets the same texts.
        with Server(program, model, "--template", str(template), "--temperature", "0") as server:
            for line, language, code in examples("serving_api.md"):
                if language == "sh" and shutil.which("curl") is None:
                    continue
                code = code.replace("http://127.0.0.1:8080", server.url)
                print(f"serving_api.md:{line}")
                assert (run_shell if language == "sh" else run_python)(code).strip(), "the example prints nothing"
                seen[language] += 1
    assert seen["python"] >= 6 and (seen["sh"] >= 5 or shutil.which("curl") is None), seen


def panels():
    """(title, expression) of the table for Grafana."""
    for line in (DOCS / "serving.md").read_text().splitlines():
        if panel := re.fullmatch(r"\| ([^|]+) \| `(.+)` \| [^|]+ \|", line):
            if "(" in panel[2]:
                yield panel[1], panel[2].replace("\\|", "|")


def metrics_of_panels(program, model):
    with Server(program, model) as server:
        server.post("/v1/completions", prompt="It", max_tokens=2)
        _, _, text = server.request("GET", "/metrics")
        exported = set(re.findall(r"^(imbrex_\w+)", text, re.MULTILINE))
        count = 0
        for title, expression in panels():
            named = set(re.findall(r"\bimbrex_\w+", expression))
            assert named and named <= exported, (title, named - exported)
            assert expression.count("(") == expression.count(")"), title
            count += 1
        assert count >= 12, count
        table = (DOCS / "serving.md").read_text()
        for name in re.findall(r"^# TYPE imbrex_(?!engine_)(\w+)", text, re.MULTILINE):
            assert f"`imbrex_{name}" in table, f"serving.md has no row for imbrex_{name}"


if __name__ == "__main__":
    run_tests([run_examples, metrics_of_panels])
