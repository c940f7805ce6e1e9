#!/usr/bin/env python3
"""Files that use a name of the standard library, of fmt or of GoogleTest which only a precompiled header brings.

Every build of .ci/run has precompiled headers (cmake/TriptychPrecompiled.cmake), and its sanitizer builds compile several files as
one: none of them finds a header that a file forgot. A file may have it from the project's headers that it includes.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMES = {
    "algorithm": r"std::(ranges::)?(sort|stable_sort|min|max|clamp|minmax|find_if|any_of|all_of|none_of|copy_n|fill|fill_n|transform|count_if|remove_if|"
                 r"lower_bound|upper_bound|rotate|max_element|min_element|nth_element|partial_sort|is_sorted)\s*[<(]",
    "array": r"std::array\b",
    "cmath": r"std::(sqrt|exp|exp2|log|log2|pow|fabs|floor|ceil|round|lround|lrint|nearbyint|isnan|isfinite|isinf|tanh|cos|sin|erf|hypot|fma|ldexp|signbit)\s*\(",
    "cstdint": r"std::u?int(8|16|32|64|ptr)_t\b",
    "cstring": r"std::(memcpy|memset|memcmp|memmove|strlen|strcmp|strerror|memchr)\b",
    "filesystem": r"std::filesystem\b",
    "functional": r"std::function\b",
    "limits": r"std::numeric_limits\b",
    "map": r"std::(multi)?map\b",
    "memory": r"std::(unique_ptr|shared_ptr|weak_ptr|make_unique|make_shared)\b",
    "optional": r"std::(optional|nullopt)\b",
    "span": r"std::(span|as_bytes|as_writable_bytes)\b",
    "string": r"std::(string|to_string|getline)\b",
    "string_view": r"std::string_view\b",
    "vector": r"std::vector\b",
    "fmt/core.h": r"fmt::(format|print)\s*\(",
    "nlohmann/json.hpp": r"\bnlohmann::(ordered_)?json\b",
    "gtest/gtest.h": r"^TEST(_F|_P)?\(",
    "gmock/gmock.h": r"\b(EXPECT|ASSERT)_THAT\(",
}
# Headers that bring a name too, by the standard or by their library's word.
ALSO = {
    "string_view": {"string"}, "string": {"sstream", "stdexcept"}, "gtest/gtest.h": {"gmock/gmock.h"},
    "fmt/core.h": {"fmt/format.h", "fmt/ranges.h", "fmt/chrono.h", "fmt/args.h"}, "nlohmann/json.hpp": {"nlohmann/json_fwd.hpp"},
    "cstdint": {"cinttypes", "stdint.h"}, "cmath": {"math.h"}, "cstring": {"string.h"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
FOLDERS = [ROOT / "src", ROOT / "tests", ROOT / "tests/fuzz", ROOT / "include"]
found = {}


def brought_by(path, seen):
    """The outer headers that `path` and the project's headers behind it include."""
    if path in seen:
        return set()
    seen.add(path)
    if path not in found:
        outer, inner = set(), []
        for name in INCLUDE.findall(path.read_text(encoding="utf-8")):
            own = next((f / name for f in [*FOLDERS, path.parent] if (f / name).is_file()), None)
            inner.append(own) if own else outer.add(name)
        found[path] = outer, inner
    outer, inner = found[path]
    return outer.union(*(brought_by(header, seen) for header in inner))


def main():
    n_files = n_faults = 0
    for folder in ("src", "tests", "include"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in (".cc", ".h"):
                continue
            n_files += 1
            code = NO_CODE.sub(lambda m: '""' if m[0][0] == '"' else "", path.read_text(encoding="utf-8"))
            brought = brought_by(path, set())
            for header, pattern in NAMES.items():
                used = re.search(pattern, code, re.M)
                if used and header not in brought and not brought & ALSO.get(header, set()):
                    line = code.count("\n", 0, used.start()) + 1
                    print(f"{path.relative_to(ROOT)}:{line}: '{used[0].strip()}' without <{header}>")
                    n_faults += 1
    print(f"check_includes: {n_files} files, {n_faults} faults")
    return n_faults != 0


sys.exit(main())
