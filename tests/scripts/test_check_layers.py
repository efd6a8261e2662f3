"""Plants one violation of each layer rule in a small library, and checks that check_layers.py reports only that one."""

import tempfile
import unittest
from pathlib import Path

from check_layers import MOST_LINES, MOST_MACROS, Checker

HEADER = "// What it is for.\n#pragma once\n"
CLEAN = {
    "include/imbrex/core/config.hpp": HEADER
    + "#define IMBREX_VERSION_MAJOR 0\n"
    + "".join(f"#define IMBREX_MACRO_{i}\n" for i in range(MOST_MACROS)),
    "include/imbrex/hw/cuda/copy.hpp": HEADER + "#include <cuda/ptx>\n#include <cute/layout.hpp>\nvoid f() { asm(\"\"); }\n",
    "include/imbrex/tile/tile.hpp": HEADER + "#include <imbrex/hw/cuda/copy.hpp>\nint lane = threadIdx.x;\n",
    "include/imbrex/ops/map.hpp": HEADER
    + '#include "../core/config.hpp"\n// asm and threadIdx in a comment\nauto s = "asm threadIdx"; int n = 1\'000; char c = \'"\';\n',
    "include/imbrex/kernels/gemm.hpp": HEADER + "#include <imbrex/imbrex.hpp>\n#include <imbrex/comm/ring.hpp>\n",
    "include/imbrex/comm/ring.hpp": HEADER + "#include <iostream>\n#include <nccl.h>\n#include <imbrex/ops/map.hpp>\n",
    "include/imbrex/imbrex.hpp": HEADER + "#include <imbrex/ops/map.hpp>\n",
    "examples/01_map.cpp": "#include <iostream>\n#include <imbrex/imbrex.hpp>\n",
}

# The file, the text appended to it, and the expected message.
BREACHES = [
    ("include/imbrex/core/config.hpp", "#include <imbrex/hw/cuda/copy.hpp>", "core includes imbrex/hw/cuda/copy.hpp"),
    ("include/imbrex/core/config.hpp", '#include "../tile/tile.hpp"', "core includes ../tile/tile.hpp"),
    ("include/imbrex/tile/tile.hpp", "#include <imbrex/ops/map.hpp>", "tile includes imbrex/ops/map.hpp"),
    ("include/imbrex/ops/map.hpp", "#include <imbrex/imbrex.hpp>", "ops includes imbrex/imbrex.hpp"),
    ("include/imbrex/imbrex.hpp", "#include <imbrex/kernels/gemm.hpp>", "imbrex.hpp includes imbrex/kernels/gemm.hpp"),
    ("include/imbrex/ops/map.hpp", "#include <imbrex/ops/none.hpp>", "imbrex/ops/none.hpp does not exist"),
    ("include/imbrex/ops/map.hpp", '#include "none.hpp"', "none.hpp does not exist"),
    ("examples/01_map.cpp", "#include <imbrex/none.hpp>", "imbrex/none.hpp does not exist"),
    ("include/imbrex/tile/tile.hpp", 'void f() { asm volatile(""); }', "asm is for hw/cuda alone"),
    ("include/imbrex/ops/map.hpp", "cuda::ptx::fence();", "cuda::ptx is for hw/cuda alone"),
    ("include/imbrex/tile/tile.hpp", "#include <cute/layout.hpp>", "<cute/layout.hpp> is for hw/cuda alone"),
    ("include/imbrex/tile/tile.hpp", "#include <cuda/ptx>", "<cuda/ptx> is for hw/cuda alone"),
    ("include/imbrex/ops/map.hpp", "int i = threadIdx.x;", "threadIdx is for hw/ and tile/ alone"),
    ("include/imbrex/kernels/gemm.hpp", "int i = blockIdx.x;", "blockIdx is for hw/ and tile/ alone"),
    ("include/imbrex/ops/map.hpp", "__shfl_sync(1, 2, 3);", "__shfl_sync is for hw/ and tile/ alone"),
    ("include/imbrex/ops/map.hpp", "int row = lane / 4;", "lane is for hw/ and tile/ alone"),
    ("examples/01_map.cpp", "int i = threadIdx.x;", "threadIdx is for hw/ and tile/ alone"),
    ("include/imbrex/kernels/gemm.hpp", "#ifdef __CUDA_ARCH__", "a kernel has no #if"),
    ("include/imbrex/kernels/gemm.hpp", "#include <nccl.h>", "<nccl.h> is for comm/ alone"),
    ("include/imbrex/ops/map.hpp", "#include <iostream>", "<iostream> is for comm/ alone"),
    ("include/imbrex/ops/map.hpp", "#define IMBREX_ONE_TOO_MANY", f"there are {MOST_MACROS + 1} macros"),
    ("include/imbrex/ops/map.hpp", "#define OURS", "a macro of the library is named IMBREX_*, not OURS"),
    ("include/imbrex/ops/map.hpp", "\n" * MOST_LINES, f"a header has {MOST_LINES} lines at most"),
]


class CheckLayers(unittest.TestCase):
    def breaches(self, files):
        with tempfile.TemporaryDirectory() as directory:
            for name, text in files.items():
                path = Path(directory, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return Checker(directory).run()

    def expect_one(self, files, message):
        found = self.breaches(files)
        self.assertEqual(len(found), 1, found)
        self.assertIn(message, found[0])

    def test_a_clean_library_has_no_breach(self):
        self.assertEqual(self.breaches(CLEAN), [])

    def test_each_breach_is_named(self):
        for name, addition, message in BREACHES:
            with self.subTest(name=name, addition=addition.strip()):
                self.expect_one(CLEAN | {name: CLEAN[name] + addition + "\n"}, message)

    def test_a_breach_tells_its_file_and_line(self):
        name = "include/imbrex/imbrex.hpp"
        found = self.breaches(CLEAN | {name: CLEAN[name] + "/* two\nlines */ int i = threadIdx.x;\n"})
        self.assertEqual(found, [f"{name}:5: threadIdx is for hw/ and tile/ alone"])

    def test_a_header_needs_an_opening_comment_and_a_guard(self):
        name = "include/imbrex/ops/map.hpp"
        self.expect_one(CLEAN | {name: "#pragma once\n"}, "opens with a comment")
        self.expect_one(CLEAN | {name: "// What it is for.\n"}, "has #pragma once")

    def test_a_folder_that_is_no_layer_is_named(self):
        self.expect_one(CLEAN | {"include/imbrex/utility/all.hpp": HEADER}, "utility is not a layer")

    def test_a_folder_of_a_kernel_has_at_least_two_headers(self):
        parts = {f"include/imbrex/kernels/gemm/{name}.hpp": HEADER for name in ("problem", "kernel")}
        self.assertEqual(self.breaches(CLEAN | parts), [])
        parts.popitem()
        self.expect_one(CLEAN | parts, "a folder has at least two headers")


if __name__ == "__main__":
    unittest.main()
