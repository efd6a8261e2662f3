"""Checks that object files of two compilers may be linked into one program: check_worlds.py DIRECTORY [REGEX]

REGEX: only object files whose path matches.

Functions whose definition depends on the compiler are in the inline namespace IMBREX_WORLDS of core/config.hpp (worlds_host,
worlds_both, worlds_device), which is part of their symbols. A function outside of it must refer neither to one inside nor to
the CUDA runtime: its definition would differ between object files, and the linker keeps an arbitrary one. Every inline
function has its own section, whose relocations list the symbols that it refers to.
"""
import pathlib
import re
import shutil
import subprocess
import sys

WORLDS = re.compile(r"\d+worlds_(host|both|device)")
RUNTIME = re.compile(r"^cuda[A-Z]")
# Only in files compiled by nvcc: hw/cuda, and the function that reports runtime errors.
CUDA_ALONE = re.compile(r"^_ZZ?NK?6imbrex(6device|2hw6encode|2hw25driver_tensor_map_encoder|6detail15require_success)")
# Functions of the library itself: not those of tests, examples or the standard library that have its types as arguments.
LIBRARY = re.compile(r"^_ZZ?N[KVRO]*6imbrex(?!6engine|5tales)")
SECTION = re.compile(r"^Relocation section '\.rela?\.text\.(?:unlikely\.|startup\.|hot\.)?(_Z\w+)'")


def faults(listing):
    """Pairs of a function outside of the namespace and a forbidden symbol that it refers to, from readelf's output."""
    function = None
    for line in listing.splitlines():
        section = SECTION.match(line)
        if line.startswith("Relocation section"):
            function = section.group(1) if section else None
            if function and (WORLDS.search(function) or CUDA_ALONE.match(function) or not LIBRARY.match(function)):
                function = None
            continue
        fields = line.split()
        if function is None or len(fields) < 5:
            continue
        symbol = fields[4].split("@")[0]
        if symbol.startswith(".rodata"):  # strings, which the compiler shares among functions
            continue
        if WORLDS.search(symbol) or RUNTIME.match(symbol):
            yield function, symbol


def readable(symbols):
    if shutil.which("c++filt") is None:
        return symbols
    return subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True).stdout.splitlines()


def main(directory, pattern=""):
    if shutil.which("readelf") is None:
        print("skipped: readelf not found")
        return 0
    found = set()
    objects = sorted(one for one in pathlib.Path(directory).rglob("*.o") if re.search(pattern, str(one)))
    for one in objects:
        listing = subprocess.run(["readelf", "-rW", str(one)], capture_output=True, text=True).stdout
        found.update(faults(listing))
    for function, symbol in sorted(found):
        outside, inside = readable([function, symbol])
        print(f"outside of IMBREX_WORLDS: {outside}\n  refers to {inside}")
    print(f"{len(objects)} object files, {len(found)} faults")
    return 1 if found or not objects else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
