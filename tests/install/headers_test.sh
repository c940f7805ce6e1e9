#!/usr/bin/env bash
# Every public header compiles alone and is in triptych.h, without warnings and with nothing of src/ in reach; so does a user's file that names what
# they declare. Argument: C++ compiler.
set -euo pipefail
compiler="$1"
root="$(cd "$(dirname "$0")/../.." && pwd)"
flags=(-std=c++20 -fsyntax-only -Wall -Wextra -Wpedantic -Wshadow -Werror "-I$root/include" -x c++)

headers=("$root"/include/triptych/*.h)
((${#headers[@]} > 5))
for header in "${headers[@]}"; do
  echo "#include \"triptych/$(basename "$header")\"" | "$compiler" "${flags[@]}" - ||
    { echo "triptych/$(basename "$header") does not compile alone" >&2; exit 1; }
  grep -q "\"triptych/$(basename "$header")\"" "$root/include/triptych/triptych.h" ||
    case "$(basename "$header")" in export.h | triptych.h) ;; *) echo "triptych.h lacks $(basename "$header")" >&2; exit 1 ;; esac
done
"$compiler" "${flags[@]}" "$root/tests/install/user.cc"
echo "${#headers[@]} headers"
