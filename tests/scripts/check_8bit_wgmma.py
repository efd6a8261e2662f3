"""Checks that the code of 8-bit attention issues 8-bit matrix instructions and none of another type.

The Hopper kernel: 8-bit WGMMA for Q K^T (A in shared memory) and for P V (A in registers). PTX has wgmma.mma_async ...
.e4m3.e4m3, SASS has QGMMA. The Ada-class kernel: PTX has mma.sync ... .e4m3.e4m3. (SASS depends on the architecture: Hopper
has no 8-bit floating-point mma.sync, so ptxas upconverts to fp16. It is not checked.)

    check_8bit_wgmma.py FILE           PTX, or an object file, which needs cuobjdump
    check_8bit_wgmma.py --mma FILE     of the Ada-class kernel
"""

import re
import shutil
import subprocess
import sys


def products_in_ptx(text):
    """The element types of every WGMMA, and whether A is in registers."""
    found = re.findall(r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k\d+\.\w+\.(\w+)\.(\w+)\s*\{[^}]*\},\s*(\{|%|-?\d)", text)
    return {(a, b, "registers" if operand == "{" else "shared") for a, b, operand in found}


def fault_in_ptx(text):
    found = products_in_ptx(text)
    wanted = {("e4m3", "e4m3", "registers"), ("e4m3", "e4m3", "shared")}
    return None if found == wanted else f"WGMMAs {sorted(found)}; wanted {sorted(wanted)}"


def fault_in_ptx_of_mma(text):
    found = set(re.findall(r"\bmma\.sync\.aligned\.m\d+n\d+k\d+\.row\.col\.\w+\.(\w+)\.(\w+)", text))
    return None if found == {("e4m3", "e4m3")} else f"mma.sync of {sorted(found)}; wanted e4m3 only"


def fault_in_sass(text):
    eight, others = len(re.findall(r"\bQGMMA\b", text)), len(re.findall(r"\b[HI]GMMA\b", text))
    return None if eight > 0 and others == 0 else f"{eight} QGMMA, {others} HGMMA or IGMMA"


def self_test():
    line = "wgmma.mma_async.sync.aligned.m64n128k32.f32.{0}.{0} {{%f1, %f2}}, {1}, %rd2, p, 1, 1;\n"
    good = line.format("e4m3", "%rd1") + line.format("e4m3", "{%r1, %r2, %r3, %r4}")
    assert fault_in_ptx(good) is None
    assert fault_in_ptx(good + line.format("bf16", "%rd1")) is not None
    assert fault_in_ptx(line.format("e4m3", "%rd1")) is not None
    assert fault_in_sass("QGMMA.64x128x32") is None and fault_in_sass("HGMMA QGMMA") is not None
    assert fault_in_sass("") is not None
    line = "mma.sync.aligned.m16n8k{0}.row.col.f32.{1}.{1}.f32 {{%f1, %f2}}, {{%r1}}, {{%r2}}, {{%f1, %f2}};\n"
    assert fault_in_ptx_of_mma(line.format(32, "e4m3")) is None
    assert fault_in_ptx_of_mma(line.format(32, "e4m3") + line.format(16, "bf16")) is not None
    assert fault_in_ptx_of_mma("") is not None


def main(*arguments):
    self_test()
    of_mma, path = "--mma" in arguments, arguments[-1]
    if path.endswith(".ptx"):
        with open(path, encoding="utf-8") as file:
            fault = (fault_in_ptx_of_mma if of_mma else fault_in_ptx)(file.read())
    elif of_mma:
        print("skipped: SASS of mma.sync depends on the architecture")
        return 0
    else:
        tool = shutil.which("cuobjdump")
        if tool is None:
            print("skipped: cuobjdump is not here")
            return 0
        fault = fault_in_sass(subprocess.run([tool, "-sass", path], capture_output=True, text=True, check=True).stdout)
    if fault is not None:
        print(f"{path}: {fault}")
    return 0 if fault is None else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
