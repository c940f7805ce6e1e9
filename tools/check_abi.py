#!/usr/bin/env python3
"""Compares the binary interface of libtriptych.so with the one in abi/libtriptych.txt.

Usage: tools/check_abi.py BUILD_FOLDER [--renew]     exit code 1 when they differ; --renew writes the file anew.

The interface is the SONAME, the symbols that the library exports, the values of public enumerations, and the sizes and offsets
of public structs and classes (as clang lays them out; left out of the comparison, with a note, where there is no clang).
A line that only comes in addition keeps programs running that were built before, so the file is simply renewed. A line that goes
or changes breaks them: then the SONAME (SOVERSION in cmake/TriptychInstall.cmake) has to change too, and CHANGELOG.md says so.
"""
import difflib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADERS = ROOT / "include" / "triptych"
BASELINE = ROOT / "abi" / "libtriptych.txt"


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def soname(library):
    match = re.search(r"\(SONAME\).*\[(.*)\]", output_of("readelf", "--dynamic", "--wide", library))
    return match.group(1) if match else "none"


def symbols(library):
    lines = output_of("nm", "--dynamic", "--defined-only", "--demangle", "--format=posix", library).splitlines()
    # "name K address size"; the name may hold blanks.
    return sorted({re.sub(r" [A-Za-z](?: [0-9a-f]+)*\s*$", "", line) for line in lines})


def without_comments(path):
    return re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))


def public_types():
    """Full names of the structs and classes of the headers, at the top of their namespace."""
    out = []
    for path in sorted(HEADERS.glob("*.h")):
        text = without_comments(path)
        for name in re.findall(r"^(?:struct|class)(?: TRIPTYCH_API)? (\w+)[^;{]*\{", text, re.MULTILINE):
            out.append(f"triptych::api::{name}")
    return sorted(out)


def enumerations():
    out = []
    for path in sorted(HEADERS.glob("*.h")):
        for name, body in re.findall(r"enum class (\w+) \{([^}]*)\}", without_comments(path)):
            for value, item in enumerate(filter(None, (part.strip() for part in body.split(",")))):
                out.append(f"{name}::{item} = {value}")
    return sorted(out)


def layouts(clang):
    """A line per field, "type.field offset", and one with size and alignment."""
    types = public_types()
    with tempfile.NamedTemporaryFile("w", suffix=".cc") as source:
        source.write('#include "triptych/triptych.h"\n')
        source.writelines(f"static_assert(sizeof({name}) > 0);\n" for name in types)
        source.flush()
        dump = output_of(clang, "-std=c++20", "-DTRIPTYCH_BUILDING", f"-I{ROOT / 'include'}", "-fsyntax-only", "-Xclang",
                         "-fdump-record-layouts", source.name)
    out = {}
    for block in dump.split("*** Dumping AST Record Layout\n"):
        lines = block.rstrip().splitlines()
        title = re.match(r" +0 \| (?:struct|class) (triptych::[\w:]+)(?: \(empty\))?$", lines[0]) if lines else None
        if not title or title.group(1) not in types:
            continue
        name = title.group(1)
        out[name] = []
        for line in lines[1:]:
            field = re.match(r" +(\d+)(?::[\d-]+)? \|   (\S.*)$", line)
            if field and not field.group(2).endswith("base)"):
                out[name].append(f"{name}.{field.group(2).split()[-1]} at {field.group(1)}")
            size = re.search(r"\[sizeof=(\d+), .*align=(\d+)", line)
            if size:
                out[name].append(f"{name} size {size.group(1)} align {size.group(2)}")
    missing = sorted(set(types) - set(out))
    if missing:
        sys.exit(f"check_abi: clang shows no layout of {', '.join(missing)}")
    return [line for name in types for line in out[name]]


def interface(library):
    sections = {"SONAME": [soname(library)], "symbols": symbols(library), "enumerations": enumerations()}
    clang = shutil.which("clang++")
    if clang:
        sections["layouts"] = layouts(clang)
    return sections


def parse(text):
    """The sections of the file: a line "# name", then one line an entry."""
    sections = {}
    for line in filter(None, text.splitlines()):
        if line.startswith("# "):
            lines = sections[line[2:]] = []
        else:
            lines.append(line)
    return sections


def main():
    arguments = [a for a in sys.argv[1:] if a != "--renew"]
    if len(arguments) != 1:
        sys.exit(__doc__)
    library = str(pathlib.Path(arguments[0]) / "libtriptych.so")
    if not pathlib.Path(library).exists():
        sys.exit(f"check_abi: {library} does not exist; cmake --build {arguments[0]} --target triptych_shared makes it")
    found = interface(library)
    foreign = [name for name in found["symbols"] if "triptych::api::" not in name]
    if foreign:
        sys.exit("check_abi: exported, but not of this library: " + ", ".join(foreign))
    if "--renew" in sys.argv:
        if "layouts" not in found:
            sys.exit("check_abi: --renew needs clang++")
        BASELINE.parent.mkdir(exist_ok=True)
        BASELINE.write_text("\n".join("\n".join([f"# {name}", *lines, ""]) for name, lines in found.items()), encoding="utf-8")
        print(f"check_abi: wrote {BASELINE.relative_to(ROOT)}")
        return 0
    expected = parse(BASELINE.read_text(encoding="utf-8"))
    if "layouts" not in found:
        print("check_abi: clang++ is missing, layouts are not compared")
        expected.pop("layouts", None)
    differences = []
    for name in expected | found:
        for line in difflib.unified_diff(expected.get(name, []), found.get(name, []), lineterm="", n=0):
            if line[0] in "+-" and line[:3] not in ("+++", "---"):
                differences.append(f"{name}: {line}")
    print("\n".join(differences + [f"check_abi: {len(found['symbols'])} symbols, {len(differences)} differences"]))
    if not differences:
        return 0
    breaking = any(line.split(": ", 1)[1].startswith("-") for line in differences)
    print("Programs built against the library before would break: SONAME and CHANGELOG.md have to change. Then renew the list:"
          if breaking else "Only additions: renew the list:")
    print(f"  tools/check_abi.py {arguments[0]} --renew")
    return 1


if __name__ == "__main__":
    sys.exit(main())
