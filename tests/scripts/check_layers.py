"""Checks the rules of the library's layers, file by file, and prints each violation as file:line: message.

    check_layers.py <repository>

The rules are those of docs/architecture.md and CONTRIBUTING.md: the direction of includes, where PTX and thread indices
may appear, the number of macros, the length of a header, folders of one header. Comments and strings are exempt.
"""

import re
import sys
from pathlib import Path

# A layer includes its own rank and lower ones. imbrex.hpp includes everything below kernels/.
RANK = {"core": 0, "hw": 1, "tile": 2, "ops": 3, "imbrex.hpp": 4, "kernels": 5, "comm": 5}
MOST_LINES = 450
MOST_MACROS = 6

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
INSTRUCTIONS = re.compile(r"\b(?:asm|__asm__|__asm)\b|\bcuda\s*::\s*ptx\b")
INSTRUCTION_HEADERS = re.compile(r"^(?:cute/|cutlass/|cuda/ptx$)")
THREADS = re.compile(
    r"\b(?:threadIdx|blockIdx|blockDim|gridDim|warpSize|__(?:shfl|ballot|activemask|match|sync)\w*"
    r"|lane|laneid|lane_(?:id|index))\b"
)
CONDITION = re.compile(r"^\s*#\s*(?:if|ifdef|ifndef|elif|else)\b")
MACRO = re.compile(r"^\s*#\s*define\s+(\w+)")
FOREIGN_MACROS = ("CUTE_", "CUTLASS_")  # switches of the dependencies
COMMENTS_AND_LITERALS = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.[^\']*|[^\'\\])\'',
    re.DOTALL,
)


def without_comments(text):
    """The code without comments and literals, with the same line numbers. The names in #include lines stay."""

    def blank(match):
        start = text.rfind("\n", 0, match.start()) + 1
        if match[0].startswith('"') and INCLUDE.match(text[start : match.end()]):
            return match[0]
        return "\n" * match[0].count("\n") or " "

    return COMMENTS_AND_LITERALS.sub(blank, text)


class Checker:
    def __init__(self, repository):
        self.repository = Path(repository)
        self.include = self.repository / "include"
        self.library = self.include / "imbrex"
        self.macros = set()
        self.breaches = []

    def breach(self, path, line, message):
        self.breaches.append(f"{path.relative_to(self.repository)}:{line}: {message}")

    def run(self):
        for path in sorted(self.library.rglob("*.hpp")):
            self.check_header(path)
        for layer in ("kernels", "comm"):
            for folder in sorted(self.library.glob(f"{layer}/*/")):
                if len(list(folder.glob("*.hpp"))) == 1:
                    self.breach(folder, 0, "a folder has at least two headers: merge this one with its public header")
        for path in sorted(self.repository.glob("examples/**/*")):
            if path.suffix in (".cpp", ".hpp", ".cu"):
                self.check_lines(path, below="examples")
        if len(self.macros) > MOST_MACROS:
            names = ", ".join(sorted(self.macros))
            self.breach(self.library, 0, f"there are {len(self.macros)} macros, {MOST_MACROS} at most: {names}")
        return self.breaches

    def check_header(self, path):
        text = path.read_text()
        count = text.count("\n")
        if count > MOST_LINES:
            self.breach(path, count, f"a header has {MOST_LINES} lines at most, this one {count}")
        if not text.startswith(("//", "/*")):
            self.breach(path, 1, "a header opens with a comment that says what it is for")
        if not re.search(r"^#pragma once$", text, re.MULTILINE):
            self.breach(path, 1, "a header has #pragma once")

        layer = path.relative_to(self.library).parts[0]
        if layer not in RANK:
            self.breach(path, 1, f"{layer} is not a layer: {', '.join(RANK)}")
            return
        self.check_lines(path, below=layer)

    def check_lines(self, path, below):
        in_library = below != "examples"
        in_cuda = path.is_relative_to(self.library / "hw" / "cuda")
        for number, line in enumerate(without_comments(path.read_text()).split("\n"), 1):
            if include := INCLUDE.match(line):
                self.check_include(path, number, below, in_cuda, quoted=include[1] == '"', name=include[2])
                continue
            if (found := INSTRUCTIONS.search(line)) and not in_cuda:
                self.breach(path, number, f"{found[0]} is for hw/cuda alone")
            if (found := THREADS.search(line)) and below not in ("hw", "tile"):
                self.breach(path, number, f"{found[0]} is for hw/ and tile/ alone")
            if below == "kernels" and CONDITION.match(line):
                self.breach(path, number, "a kernel has no #if: what differs between the worlds lives in hw/")
            if in_library and (macro := MACRO.match(line)):
                self.check_macro(path, number, macro[1])

    def check_include(self, path, number, below, in_cuda, quoted, name):
        if INSTRUCTION_HEADERS.match(name) and not in_cuda:
            self.breach(path, number, f"<{name}> is for hw/cuda alone")
        if name in ("iostream", "nccl.h") and below not in ("comm", "examples"):
            self.breach(path, number, f"<{name}> is for comm/ alone")

        beside = path.parent / name
        if below == "examples" and quoted and not beside.exists():  # "engine/folder/name.hpp"
            beside = self.repository / "examples" / name
        target = beside if quoted and beside.exists() else self.include / name
        if (quoted or name.startswith("imbrex/")) and not target.exists():
            self.breach(path, number, f"{name} does not exist")
        elif below in RANK and target.is_relative_to(self.library) and target.exists():
            layer = target.resolve().relative_to(self.library.resolve()).parts[0]
            if RANK.get(layer, 0) > RANK[below]:
                self.breach(path, number, f"{below} includes {name}, which lies above it")

    def check_macro(self, path, number, name):
        if name.startswith("IMBREX_"):
            # A macro that its own header undefines is not visible to users.
            local = re.search(rf"^#undef {name}$", path.read_text(), re.MULTILINE)
            if not name.startswith("IMBREX_VERSION_") and not local:
                self.macros.add(name)
        elif not name.startswith(FOREIGN_MACROS):
            self.breach(path, number, f"a macro of the library is named IMBREX_*, not {name}")


if __name__ == "__main__":
    breaches = Checker(sys.argv[1]).run()
    print("\n".join(breaches) or "No violations of the layer rules.")
    sys.exit(1 if breaches else 0)
