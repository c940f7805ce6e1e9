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

fail() { echo "install_test: $*" >&2; exit 1; }

rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"

# Of the headers the public ones alone, of the libraries the shared one, under its SONAME.
diff -r "$source_root/include" "$work/prefix/include"
libraries="$(cd "$work/prefix" && find . -name '*.a' -o -name '*.so*' | sort | xargs -n 1 basename)"
[[ "$libraries" == $'libtriptych.so\nlibtriptych.so.0\nlibtriptych.so.0.'* ]] || fail "installed libraries: $libraries"
library="$(find "$work/prefix" -name 'libtriptych.so.0')"
readelf --dynamic --wide "$library" | grep -q 'SONAME.*\[libtriptych.so.0\]' || fail "SONAME of $library"
foreign="$(nm --dynamic --defined-only --demangle "$library" | grep -v '[ (]triptych::api::' || true)"
[[ -z "$foreign" ]] || fail "exported, but not of the public interface: $foreign"

# The package asks for no other: everything that the build found is out of reach here.
cmake -S "$source_root/examples" -B "$work/examples" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_DISABLE_FIND_PACKAGE_{Threads,fmt,spdlog,nlohmann_json,PNG,JPEG,PkgConfig}=ON \
  >"$work/configure.log" 2>&1 || { cat "$work/configure.log" >&2; exit 1; }
cmake --build "$work/examples"

# No installed file may name the build or source folders: a package moves between machines.
if grep -rlI -e "$source_root/src" -e "$build" "$work/prefix"; then fail "installed files name folders of the build"; fi

"$work/prefix/bin/triptych" --version | grep -E '^triptych [0-9]+\.[0-9]+\.[0-9]+'
[[ -s "$work/prefix/share/man/man1/triptych.1" ]]
[[ -s "$work/prefix/share/bash-completion/completions/triptych" ]]
by_library="$("$work/examples/ask" "$model" "$picture" "$question")"
by_program="$("$work/prefix/bin/triptych" run "$model" --image "$picture" --prompt "$question")"
echo "library: $by_library"
echo "program: $by_program"
[[ -n "$by_library" && "$by_library" == "$by_program" ]] || fail "library and program answer differently"

# A directory that is no model is an error of one line, not a crash.
status=0
"$work/examples/ask" "$work" "$picture" "$question" 2>"$work/error.txt" || status=$?
[[ "$status" == 2 && "$(wc -l <"$work/error.txt")" == 1 ]] || fail "status $status: $(cat "$work/error.txt")"

# A build of the program and nothing else, as scripts/demo.sh leaves it: the program installs, the library says what it lacks.
mkdir "$work/program_only"
(cd "$build" && find . -name cmake_install.cmake -not -path "*/install_test/*" -exec cp --parents {} "$work/program_only" \; &&
  cp --parents triptych generated/pages/* "$work/program_only")
find "$work/program_only" -name cmake_install.cmake -exec sed -i "s|$build|$work/program_only|g" {} +
cmake --install "$work/program_only" --component program --prefix "$work/program" >"$work/program.log"
[[ -x "$work/program/bin/triptych" && -s "$work/program/share/man/man1/triptych.1" && ! -e "$work/program/include" ]]
if cmake --install "$work/program_only" --prefix "$work/all" >"$work/all.log" 2>&1; then fail "installed a library that is not built"; fi
grep -q 'libtriptych.so.*is not built' "$work/all.log" || fail "$(cat "$work/all.log")"
