"""check_worlds.py reports violations, and nothing else."""
import unittest

import check_worlds

TEMPLATE = """
Relocation section '.rela.text.{function}' at offset 0x40 contains 1 entry:
    Offset             Info             Type               Symbol's Value  Symbol's Name + Addend
0000000000000014  000000030000011b R_AARCH64_CALL26       0000000000000000 {symbol} + 0
"""
OUTSIDE = "_ZN6imbrex4somethingEv"
INSIDE = "_ZN6imbrex11worlds_host6launchEv"


def faults(function, symbol):
    return list(check_worlds.faults(TEMPLATE.format(function=function, symbol=symbol)))


class Faults(unittest.TestCase):
    def test_outside_refers_to_inside(self):
        self.assertEqual(faults(OUTSIDE, INSIDE), [(OUTSIDE, INSIDE)])

    def test_outside_refers_to_the_runtime(self):
        self.assertEqual(faults(OUTSIDE, "cudaMalloc"), [(OUTSIDE, "cudaMalloc")])
        self.assertEqual(faults(OUTSIDE, "cudaFree@libcudart.so.13"), [(OUTSIDE, "cudaFree")])

    def test_inside_may_refer_to_both(self):
        self.assertEqual(faults(INSIDE, INSIDE), [])
        self.assertEqual(faults(INSIDE, "cudaMalloc"), [])

    def test_others_may(self):
        self.assertEqual(faults(OUTSIDE, "memcpy"), [])
        self.assertEqual(faults("_ZN4user4mainEv", INSIDE), [])


if __name__ == "__main__":
    unittest.main()
