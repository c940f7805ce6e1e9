#!/usr/bin/env python3
"""Writes src/unicode/python_tables.cc from Python's own Unicode data, so that text operations of chat templates
change characters exactly as Python does. What utf8proc already knows (simple case mapping, categories) is left out.

Usage: python3 tools/make_python_tables.py > src/unicode/python_tables.cc
"""
import unicodedata


def chars():
    for cp in range(0x110000):
        if not 0xD800 <= cp < 0xE000:
            yield cp, chr(cp)


def ranges(predicate):
    out, start, previous = [], None, None
    for cp, c in chars():
        if predicate(c):
            if start is None:
                start = cp
            previous = cp
        elif start is not None:
            out.append((start, previous))
            start = None
    return out


def quoted(text):
    # One literal per byte run: a hex escape must not swallow the next character.
    return '"' + "".join(f"\\{b:03o}" if b >= 0x80 else chr(b) for b in text.encode()) + '"'


def table(name, values, comment):
    print(f"// {comment}\nconstexpr Range k{name}Data[] = {{")
    line = "   "
    for a, b in values:
        item = f" {{0x{a:x}, 0x{b:x}}},"
        if len(line) + len(item) > 108:
            print(line)
            line = "   "
        line += item
    print(line + "\n};")
    print(f"const std::span<const Range> k{name}(k{name}Data);\n")


category = unicodedata.category
special = [(cp, c) for cp, c in chars() if len(c.upper()) > 1 or len(c.title()) > 1 or len(c.casefold()) > 1]
print(f"""// Written by tools/make_python_tables.py from Unicode {unicodedata.unidata_version} data. Do not edit.
// What Python's str methods know beyond simple case mapping and general categories.
#include "unicode/python_tables.h"

namespace triptych::python {{
namespace {{
""")
print("constexpr SpecialCase kSpecialCasesData[] = {")
for cp, c in special:
    print(f"    {{0x{cp:x}, {quoted(c.upper())}, {quoted(c.title())}, {quoted(c.casefold())}}},")
print("};\n}  // namespace\n\nconst std::span<const SpecialCase> kSpecialCases(kSpecialCasesData);\n\nnamespace {")
print("using Range = CodePointRange;")
print("}  // namespace\n")
table("OtherLowercase", ranges(lambda c: c.islower() and category(c) != "Ll"), "islower() beyond category Ll.")
table("OtherUppercase", ranges(lambda c: c.isupper() and category(c) != "Lu"), "isupper() beyond category Lu.")
table("OtherDigits", ranges(lambda c: c.isdigit() and not c.isdecimal()), "isdigit() beyond category Nd.")
table("OtherNumerics", ranges(lambda c: c.isnumeric() and category(c)[0] != "N"), "isnumeric() beyond categories N*.")
print("}  // namespace triptych::python")
