"""Writes the tables of unicode.cpp, unicode_categories.hpp and unicode_composition.hpp, beside this script.

    python3 unicode_table.py

The properties come from Python's unicodedata, so the Unicode version is that of the Python that runs this.
"""

import sys
import unicodedata
from pathlib import Path

LAST = sys.maxunicode
WIDTH = 118
HANGUL = range(0xAC00, 0xD7A4)  # composed by a rule, not by the table

# The order of general_category in unicode.hpp.
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn".split()


def category_of(value):
    return CATEGORIES.index(unicodedata.category(chr(value)))


def combining_class(value):
    return unicodedata.combining(chr(value))


def boundaries(property_of, shift):
    """The points where a property changes, each with the value that begins there in its low bits."""
    result, before = [], None
    for value in range(LAST + 1):
        here = property_of(value)
        if here != before:
            result.append(value << shift | here)
        before = here
    return result


def decompositions():
    """Triples: a code point and the two it is made of (the second is 0 where it is one); and whether those compose to it."""
    result = []
    for value in range(LAST + 1):
        text = unicodedata.decomposition(chr(value))
        if not text or text.startswith("<") or value in HANGUL:
            continue
        parts = [int(part, 16) for part in text.split()]
        composes = len(parts) == 2 and unicodedata.normalize("NFC", "".join(map(chr, parts))) == chr(value)
        result += [value << 1 | composes, parts[0], parts[1] if len(parts) == 2 else 0]
    return result


def array(name, numbers):
    lines, line = [], "    "
    for number in numbers:
        text = f"{number},"
        if len(line) + len(text) > WIDTH:
            lines.append(line)
            line = "    "
        line += text
    lines.append(line)
    return f"inline constexpr std::uint32_t {name}[] = {{\n" + "\n".join(lines) + "\n};\n"


def write(name, comment, *arrays):
    Path(__file__).with_name(name).write_text(
        f"// {comment} Written by unicode_table.py from Unicode {unicodedata.unidata_version}: not to be changed by hand.\n"
        "#pragma once\n\n#include <cstdint>\n\nnamespace imbrex::engine {\n\n// clang-format off\n"
        + "\n".join(arrays)
        + "// clang-format on\n\n}  // namespace imbrex::engine\n"
    )


write(
    "unicode_categories.hpp",
    "Where the general category of code points changes: the first one times 32, plus its category.",
    array("category_boundaries", boundaries(category_of, 5)),
)
write(
    "unicode_composition.hpp",
    "What code points are made of. Boundaries: the first code point times 256, plus its combining class.\n"
    "// Decompositions: three numbers each, the code point times 2 (plus 1 where its parts compose to it) and the parts.\n//",
    array("combining_boundaries", boundaries(combining_class, 8)),
    array("decompositions", decompositions()),
)
