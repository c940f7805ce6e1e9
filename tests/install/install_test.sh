#!/usr/bin/env bash
# Installs the build into a folder, builds examples/ against it with find_package(triptych), and runs both programs from
# there: they must give the same answer. Arguments: build folder, work folder, C++ compiler.
set -euo pipefail
build="$1"
work="$2"
compiler="$3"
source_root="$(cd "$(dirname "$0")/../.." && pwd)"
model="$source_root/assets/models/scenes-llava"
picture="$source_root/assets/eval/scenes/0000.png"
question="Describe the image."

rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
cmake -S "$source_root/examples" -B "$work/examples" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/configure.log"
cmake --build "$work/examples"

# No installed file may name the build or source folders: a package moves between machines.
if grep -rlI -e "$source_root/src" -e "$build" "$work/prefix"; then
  echo "installed files name folders of the build" >&2
  exit 1
fi

"$work/prefix/bin/triptych" --version | grep -E '^triptych [0-9]+\.[0-9]+\.[0-9]+'
[[ -s "$work/prefix/share/man/man1/triptych.1" ]]
[[ -s "$work/prefix/share/bash-completion/completions/triptych" ]]
by_library="$("$work/examples/ask" "$model" "$picture" "$question")"
by_program="$("$work/prefix/bin/triptych" run "$model" --image "$picture" --prompt "$question")"
echo "library: $by_library"
echo "program: $by_program"
[[ -n "$by_library" && "$by_library" == "$by_program" ]]

# A directory that is no model is an error of one line, not a crash.
status=0
"$work/examples/ask" "$work" "$picture" "$question" 2>"$work/error.txt" || status=$?
[[ "$status" == 2 && "$(wc -l <"$work/error.txt")" == 1 ]]
