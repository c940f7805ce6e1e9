#!/usr/bin/env python3
"""Checks that includes run downwards only, by the table in docs/architecture.md ("Which way the arrows run").

Usage: tools/check_layers.py [root]     prints file:line for each include that breaks the rules; exit code 1 if any.

Beyond the table: a model includes no other model's header unless it is a shared part (its name is not a registered family),
a kernel file compiled for one instruction set includes only its contract, intrinsics and plain C headers, and nothing in src/
includes anything by a relative path. Public headers include the standard library and each other; `triptych run`
uses them alone. Only cli reads a command line, prints and ends the process. Tests may look further down than their layer (the backend, checkpoints) but not up.
"""
import pathlib
import re
import sys

# What all layers above the engine may include.
LIBRARY = ["base", "tensor", "io", "media", "unicode", "grammar", "text", "backend", "weights", "nn", "models/model.h", "engine"]

# layer -> layers (or single headers) that it may include besides itself and its own subfolders
LAYERS = {
    "base": [],
    "tensor": ["base"],
    "io": ["base", "tensor"],
    "media": ["base"],
    "unicode": ["base"],
    "jinja": ["base", "unicode"],
    "grammar": ["base", "unicode"],
    "text": ["base", "unicode", "jinja"],
    "backend": ["base", "tensor"],
    "backend/cpu": ["base", "tensor", "backend"],
    "backend/cuda": ["base", "tensor", "backend"],
    "weights": ["base", "tensor", "backend"],
    "nn": ["base", "tensor", "backend", "weights"],
    "models": ["base", "tensor", "media", "backend", "weights", "nn"],
    "report": ["base", "tensor", "backend", "models/model.h"],
    "engine": ["base", "tensor", "io", "media", "unicode", "grammar", "text", "backend", "weights", "models/model.h"],
    "api": ["base", "tensor", "io", "media", "unicode", "grammar", "text", "backend", "weights", "models/model.h", "engine"],
    "evaluation": ["base", "tensor", "io", "media", "unicode", "grammar", "text", "backend", "weights", "models/model.h", "engine", "report"],
    "benchmark": ["base", "tensor", "io", "media", "unicode", "grammar", "text", "backend", "weights", "models/model.h", "engine", "report"],
    "compress": [*LIBRARY, "evaluation", "report"],
    "server": [*LIBRARY, "evaluation", "report", "compress"],
    "cli": [*LIBRARY, "api", "evaluation", "report", "benchmark", "compress", "server"],
    "capi": [*LIBRARY, "compress", "server"],
}
# Headers that a layer above may include although the layer itself is closed to it: who makes a backend, and loads a model.
EXTRA_FILES = {
    "engine": ["backend/cpu/cpu_backend.h"],
    "report": ["backend/cpu/probe.h", "backend/cpu/tuning.h"],
    "compress": ["backend/cpu/cpu_backend.h"],
    "server": ["backend/cpu/cpu_backend.h"],
    "cli": ["backend/cpu/cpu_backend.h"],
    "capi": ["backend/cpu/cpu_backend.h"],
}
# The one way to include/triptych/: it keeps names of the interface and inner names apart.
PUBLIC_INTERFACE = "api/public.h"
# What is written as a user of the library would: neither these files nor what they include reach below that interface.
PUBLIC_ONLY = ["cli/cmd_run.cc", "cli/chat.cc", "cli/batch_run.cc", "cli/chat_session.cc", "cli/answer_output.cc"]
OPEN_TO_PUBLIC_ONLY = ("base", "report", "cli")
# What tests may use below their layer, to run with real weights on a real backend.
EXTRA_FOR_TESTS = ["backend/cpu/cpu_backend.h", "io", "support"]
# And what the engine's tests use to go through every family.
EXTRA_FOR_TESTS_OF = {"engine": ["models/testing/tiny_models.h"]}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
ISA_FILE = re.compile(r"_(avx2|avx512|avx512vnni|avx512bf16|amxint8|amxbf16|neon|dotprod|i8mm)\.(cc|h)$")
FAMILY_REGISTRATION = re.compile(r"\bregister_(\w+)\s*\(\s*ModelRegistry")
INTRINSICS = {"immintrin.h", "arm_neon.h", "arm_fp16.h", "arm_bf16.h", "x86intrin.h", "smmintrin.h", "nmmintrin.h"}
PLAIN_C = {"stddef.h", "stdint.h", "stdbool.h", "string.h", "math.h", "float.h", "limits.h"}

# What a library leaves to the program; progress bars and the log are drawn by these two.
PROGRAM_ONLY = re.compile(r"\bstd(?:out|err)\b|\bstd::(?:printf|puts|cout|cerr|exit|_Exit|abort)\b")
PRINTERS = {"base/log.cc", "base/progress.cc"}


def layer_of(path):
    """The longest layer name that `path` (below src/) lies in, or None."""
    parts = path.split("/")
    for n in (2, 1):
        name = "/".join(parts[:n])
        if len(parts) > n and name in LAYERS:
            return name
    return None


def is_test(path):
    return bool(re.search(r"(_test|_bench)\.cc$|/testing/|/test_[^/]*\.h$", path))


def is_allowed(path, layer, include):
    if include.startswith("triptych/"):
        return path == PUBLIC_INTERFACE
    target = layer_of(include)
    if target == layer or include.startswith(layer + "/") and target is None:
        return True
    allowed = LAYERS[layer] + EXTRA_FILES.get(layer, [])
    if is_test(path):
        allowed = allowed + EXTRA_FOR_TESTS + EXTRA_FOR_TESTS_OF.get(layer, [])
    return target in allowed or include in allowed or include.split("/")[0] in allowed and target is None


def check_isa_file(include, bracket):
    if bracket == "<":
        if include not in INTRINSICS | PLAIN_C:
            return f"<{include}> in a file for one instruction set: only intrinsics and plain C headers"
    elif not include.startswith("backend/cpu/kernels/") and not include.startswith("media/"):
        return f'"{include}" in a file for one instruction set: only its contract'
    return None


def check_library_line(line):
    """What is wrong with a line of a library, or None."""
    if line.lstrip().startswith("#include <CLI/"):
        return "CLI11 outside cli"
    code = re.sub(r'"(?:\\.|[^"\\])*"', '""', line).split("//")[0]
    match = PROGRAM_ONLY.search(code)
    return f"{match.group()}: a library neither prints nor ends the process" if match else None


def families_of(src):
    """Model files that register a family: nobody else may include their headers."""
    out = set()
    for path in sorted(src.glob("models/*.cc")):
        if not is_test(path.as_posix()) and FAMILY_REGISTRATION.search(path.read_text(encoding="utf-8")):
            out.add(path.stem)
    return out


def check_file(path, relative, families):
    layer = layer_of(relative)
    if layer is None:
        yield 1, "lies in no layer"
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if layer != "cli" and not is_test(relative) and relative not in PRINTERS:
            problem = check_library_line(line)
            if problem:
                yield number, problem
        match = INCLUDE.match(line)
        if not match:
            continue
        bracket, include = match.groups()
        if ISA_FILE.search(relative):
            problem = check_isa_file(include, bracket)
            if problem:
                yield number, problem
        if bracket == "<":
            continue
        if "/" not in include or include.startswith("."):
            yield number, f'"{include}": write the path from src/'
        elif not is_allowed(relative, layer, include):
            yield number, f'"{include}": {layer} may not include it'
        elif layer == "models" and include.startswith("models/"):
            family = pathlib.PurePosixPath(include).stem
            own = pathlib.PurePosixPath(relative).stem.removesuffix("_test")
            if family in families and family != own:
                yield number, f'"{include}": a model may not include another model'


def includes_of(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, *match.groups()


def check_public_headers(include):
    """A public header includes the standard library and its own kind."""
    for path in sorted((include / "triptych").glob("*.h")):
        for number, bracket, name in includes_of(path):
            if bracket == "<" and not re.fullmatch(r"[a-z_]+", name) or bracket == '"' and not name.startswith("triptych/"):
                yield f"include/triptych/{path.name}:{number}: {name} in a public header"


def check_public_only(src):
    """Follows the includes of PUBLIC_ONLY; a problem names the file that holds the include."""
    waiting = list(PUBLIC_ONLY)
    seen = set(waiting)
    for relative in waiting:
        if not (src / relative).exists():
            yield f"src/{relative}:1: listed in tools/check_layers.py, but absent"
            continue
        for number, bracket, name in includes_of(src / relative):
            if bracket == "<" or name == PUBLIC_INTERFACE or name in seen:
                continue
            if layer_of(name) not in OPEN_TO_PUBLIC_ONLY:
                yield f'src/{relative}:{number}: "{name}" is reached from {", ".join(PUBLIC_ONLY)}, which use include/triptych/ alone'
            else:
                seen.add(name)
                waiting.append(name)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    src = root / "src"
    families = families_of(src)
    n_files = 0
    problems = []
    for path in sorted(src.rglob("*")):
        if path.suffix not in {".h", ".cc"}:
            continue
        n_files += 1
        relative = path.relative_to(src).as_posix()
        problems += [f"src/{relative}:{number}: {text}" for number, text in check_file(path, relative, families)]
    problems += list(check_public_headers(root / "include")) + list(check_public_only(src))
    print("\n".join(problems + [f"{n_files} files, {len(problems)} problems"]))
    return 1 if problems or n_files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
