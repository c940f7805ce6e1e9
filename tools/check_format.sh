#!/usr/bin/env bash
# Checks that every C++ file is as clang-format leaves it (.clang-format); --fix rewrites those that are not.
# The format is that of clang-format 14 (Debian 12): other versions differ in details, so with them nothing is checked.
set -euo pipefail
cd "$(dirname "$0")/.."

tool="$(command -v clang-format-14 || command -v clang-format || true)"
[[ -n "$tool" ]] || { echo "check_format: clang-format is missing; scripts/setup.sh --dev installs it" >&2; exit 1; }
version="$("$tool" --version | sed -n 's/.*version \([0-9]*\)\..*/\1/p')"
if [[ "$version" != 14 ]]; then
  echo "check_format: skipped, the format is that of clang-format 14 and this is version $version"
  exit 0
fi

mode=(--dry-run -Werror)
[[ "${1:-}" == --fix ]] && mode=(-i)
git ls-files -z '*.cc' '*.h' | xargs -0 -r -n 20 -P "$(nproc)" "$tool" "${mode[@]}"
echo "check_format: $(git ls-files '*.cc' '*.h' | wc -l) files"
