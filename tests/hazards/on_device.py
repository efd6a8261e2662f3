"""Runs the corpus of hazards on a GPU and writes what is seen there as JSON.

    on_device.py <imbrex_hazards_device> <output.json> [--earlier found.json] [--jobs 8] [--tools memcheck ...]

Each kernel runs in a process of its own: the wrong variant without tools (do its results differ from those of the fixed
variant?), then under each tool of compute-sanitizer. A run that does not end within its limit, twice, counts as a hang.
`--earlier` continues a run that its budget ended, or adds the kernels that are new since.
"""

import argparse
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import time

TOOLS = ["memcheck", "racecheck", "initcheck", "synccheck"]
SUMMARY = re.compile(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)")


def run(command, limit):
    """The result of one run, or of a second if the first did not end within the limit."""
    status, output = run_once(command, limit)
    return (status, output) if status is not None else run_once(command, limit)


def run_once(command, limit):
    """The exit status and the output; None as status if the limit was reached. compute-sanitizer runs the program in a
    child process, so the whole group is killed."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, errors="replace", text=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=limit)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, process.communicate()[0] or ""


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


def examine(program, one, limit):
    if "results" in one:
        return
    one["results"] = without_tools(program, one["name"], variant_of(one), limit)
    if one["kind"] != "correct":
        one["fixed"] = without_tools(program, one["name"], "fixed", limit)


def watch(program, one, tool, limit):
    """A report about the wrong variant says little if the tool reports the fixed one, too."""
    seen = one["tools"].setdefault(tool, {})
    variants = ["fixed"] if one["kind"] == "correct" else ["wrong", "fixed"]
    for variant in variants:
        if variant == "fixed" and seen.get("wrong", "detected") != "detected":
            continue
        if variant not in seen:
            seen[variant] = under_tool(program, one["name"], variant, tool, limit)


def write(found, output):
    with open(output, "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)


def cases_of(program, earlier):
    """The kernels of the program, with what an earlier run has found."""
    found = {}
    if earlier:
        with open(earlier, encoding="utf-8") as file:
            found = {one["name"]: one for one in json.load(file)}
    listed = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout
    for family, name, kind in (line.split() for line in listed.splitlines()):
        found.setdefault(name, {"family": family, "name": name, "kind": kind, "tools": {}})
    return list(found.values())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("output")
    parser.add_argument("--earlier")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--limit", type=float, default=5, help="seconds, for a run")
    parser.add_argument("--budget", type=float, default=3600, help="seconds; what has not started by then does not run")
    parser.add_argument("--tools", nargs="*", default=TOOLS)
    given = parser.parse_args()
    found = cases_of(given.program, given.earlier)
    deadline = time.monotonic() + given.budget
    # Kernels that hang come last: they take GPU time from the others.
    order = sorted(found, key=lambda one: one["kind"] == "hangs")

    def for_each(work):
        def in_time(one):
            if time.monotonic() < deadline:
                work(one)

        with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
            list(pool.map(in_time, order))
        write(found, given.output)

    for_each(lambda one: examine(given.program, one, given.limit))
    for tool in given.tools:
        for_each(lambda one, tool=tool: watch(given.program, one, tool, given.limit))
    print(f"{len(found)} kernels")


if __name__ == "__main__":
    main()
