#!/usr/bin/env bash
# clang-tidy (.clang-tidy) on C++ sources.
#   scripts/tidy.sh              sources that differ from the branch main, or from HEAD on main itself
#   scripts/tidy.sh FILE...      these
#   scripts/tidy.sh --all        every source: long
set -euo pipefail
cd "$(dirname "$0")/.."
command -v clang-tidy >/dev/null || { echo "tidy: clang-tidy is missing; scripts/setup.sh --dev installs it" >&2; exit 1; }

case "${1:-}" in
  --all) mapfile -t files < <(git ls-files 'src/*.cc' 'tests/*.cc') ;;
  '')
    base=main
    [[ "$(git rev-parse --abbrev-ref HEAD)" != main ]] || base=HEAD
    mapfile -t files < <(git diff --name-only --diff-filter=d "$base" -- 'src/*.cc' 'tests/*.cc')
    ;;
  *) files=("$@") ;;
esac
((${#files[@]} > 0)) || { echo "tidy: no source differs"; exit 0; }

# The compile commands of clang: GCC's hold flags that clang does not know. Precompiled headers would have to be built first.
cmake --preset clang -B build/tidy -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >/dev/null
cmake --build build/tidy --target triptych_build_info >/dev/null
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy -p build/tidy --quiet
echo "tidy: ${#files[@]} files"
