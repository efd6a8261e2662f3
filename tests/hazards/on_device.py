"""Runs the corpus of hazards on a GPU and writes what is seen there as JSON.

    on_device.py <imbrex_hazards_device> <output.json> [--checker findings.json] [--jobs 8] [--tools memcheck ...]

Each kernel runs in a process of its own: the wrong variant without tools (do its results differ from those of the fixed
variant?), then under each tool of compute-sanitizer. A run that does not end within its limit counts as a hang.
`--checker` adds the findings of the host test (IMBREX_CORPUS_JSON).
"""

import argparse
import concurrent.futures
import json
import re
import subprocess
import time

TOOLS = ["memcheck", "racecheck", "initcheck", "synccheck"]
SUMMARY = re.compile(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)")


def run(command, limit):
    """The exit status and the output; None as status if the limit was reached."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        return done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as late:
        return None, (late.stdout or b"").decode(errors="replace")


def without_tools(program, name, variant, limit):
    status, output = run([program, name, variant], limit)
    if status is None:
        return "hang"
    return {0: "same", 3: "different", 4: "error"}.get(status, f"status {status}: {output.strip()[-200:]}")


def under_tool(program, name, variant, tool, limit):
    command = ["compute-sanitizer", "--tool", tool, program, name, variant, "--alone"]
    status, output = run(command, limit)
    found = any(int(a or b) > 0 for a, b in SUMMARY.findall(output))
    if found:
        return "detected"
    return "hang" if status is None else "silent"


def variant_of(one):
    return "fixed" if one["kind"] == "correct" else "wrong"


def examine(program, case, limit):
    family, name, kind = case
    one = {"family": family, "name": name, "kind": kind, "tools": {}}
    one["results"] = without_tools(program, name, variant_of(one), limit)
    if kind != "correct":
        one["fixed"] = without_tools(program, name, "fixed", limit)
    return one


def write(found, output):
    with open(output, "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("output")
    parser.add_argument("--checker")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--limit", type=float, default=5, help="seconds, without tools")
    parser.add_argument("--tool-limit", type=float, default=20, help="seconds, under a tool")
    parser.add_argument("--budget", type=float, default=3600, help="seconds; tools that have not started by then do not run")
    parser.add_argument("--tools", nargs="*", default=TOOLS)
    given = parser.parse_args()
    listed = subprocess.run([given.program, "--list"], capture_output=True, text=True, check=True).stdout
    cases = [line.split() for line in listed.splitlines()]
    deadline = time.monotonic() + given.budget
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        found = list(pool.map(lambda case: examine(given.program, case, given.limit), cases))
        if given.checker:
            with open(given.checker, encoding="utf-8") as file:
                by_name = {one["name"]: one for one in json.load(file)}
            for one in found:
                one["checker"] = by_name.get(one["name"])
        write(found, given.output)
        for tool in given.tools:

            def watch(one, tool=tool):
                if time.monotonic() > deadline:
                    return "not run"
                return under_tool(given.program, one["name"], variant_of(one), tool, given.tool_limit)

            for one, seen in zip(found, pool.map(watch, found)):
                one["tools"][tool] = seen
            write(found, given.output)
    print(f"{len(found)} kernels")


if __name__ == "__main__":
    main()
