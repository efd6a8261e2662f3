"""Keeps the words of the field where they belong, and retired names away: check_names.py <repository>

- No identifier of tests/scripts/retired_names.txt stands in the sources or the documentation. (CHANGELOG.md and docs/lab tell of the past.)
- Each term that engineers search for stands in the header that it leads to: in its opening comment or in a name.
"""

import re
import subprocess
import sys
from pathlib import Path

# Term, as it is searched for: where it leads.
TERMS = {
    "GQA": "kernels/attention/problem.hpp",
    "MQA": "kernels/attention/problem.hpp",
    "LSE": "kernels/attention/problem.hpp",
    "head_dim": "kernels/attention/problem.hpp",
    "varlen": "kernels/attention/problem.hpp",
    "cu_seqlens": "kernels/attention/problem.hpp",
    "block table": "kernels/attention/problem.hpp",
    "ping-pong": "kernels/attention/consumer.hpp",
    "warp specialization": "kernels/attention/hopper.hpp",
    "persistent kernel": "ops/grid/scheduler.hpp",
    "stream-K": "ops/grid/scheduler.hpp",
    "KV cache": "kernels/paged_decode.hpp",
    "split-KV": "kernels/paged_decode.hpp",
    "speculative": "kernels/paged_decode.hpp",
    "RoPE": "kernels/rope.hpp",
    "SwiGLU": "kernels/swiglu.hpp",
    "top-p": "kernels/sample.hpp",
    "epilogue": "kernels/gemm/epilogue.hpp",
    "GEMV": "kernels/gemm/gemv.hpp",
    "swap-AB": "kernels/gemm/small_m.hpp",
    "dequantize": "ops/register/dequantise.hpp",
    "PDL": "ops/grid/pdl.hpp",
    "DSMEM": "ops/memory/cluster.hpp",
    "TMA multicast": "ops/memory/tma.hpp",
    "swizzle": "core/swizzled_layout.hpp",
}
SEARCHED = ("include", "tests", "bench", "examples", "docs", "cmake", "README.md", "CONTRIBUTING.md", "CMakeLists.txt")
OF_THE_PAST = ("docs/lab/", "tests/scripts/retired_names.txt")
TEXT = (".hpp", ".cpp", ".cu", ".md", ".py", ".cmake", ".txt", ".sh", ".json")


def retired_names(text):
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def retired_in(text, names):
    """Each retired name of the text, with the number of its line."""
    wanted = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, names)) + r")(?!\w)")
    for number, line in enumerate(text.splitlines(), 1):
        for found in wanted.finditer(line):
            yield number, found[0]


def opening_comment_and_names(text):
    """What a search for a word should find: the comment at the top, and the code without its other comments."""
    lines = text.splitlines()
    top = next((i for i, line in enumerate(lines) if not line.startswith("//")), len(lines))
    return "\n".join(lines[:top] + [line.split("//")[0] for line in lines[top:]])


def main(repository):
    names = retired_names((repository / "tests/scripts/retired_names.txt").read_text())
    listed = subprocess.run(["git", "ls-files", "--", *SEARCHED], cwd=repository, capture_output=True, text=True).stdout
    breaches = []
    for name in listed.splitlines() or map(str, repository.rglob("include/**/*.hpp")):
        path = repository / name
        if name.startswith(OF_THE_PAST) or path.suffix not in TEXT or not path.is_file():
            continue
        for number, found in retired_in(path.read_text(errors="replace"), names):
            breaches.append(f"{name}:{number}: {found} is retired; see CHANGELOG.md for the name in its place")
    for term, header in TERMS.items():
        path = repository / "include/imbrex" / header
        if not path.is_file():
            breaches.append(f"include/imbrex/{header} does not exist; '{term}' leads there")
        elif term.replace("\n", " ") not in re.sub(r"\n// *", " ", opening_comment_and_names(path.read_text())):
            breaches.append(f"include/imbrex/{header}: '{term}' leads here and is not in its opening comment or its names")
    print("\n".join(breaches) if breaches else "No retired name is back, and each term stands where it leads.")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
