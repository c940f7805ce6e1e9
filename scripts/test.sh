#!/usr/bin/env bash
# Sets up, builds and runs every test: unit, parity, e2e and fuzz-smoke (tests/CMakeLists.txt says what each label holds).
#   scripts/test.sh [--no-setup] [CMAKE_OPTION...]     e.g. scripts/test.sh -DTRIPTYCH_WERROR=ON
set -euo pipefail
cd "$(dirname "$0")/.."

setup=yes
[[ "${1:-}" == --no-setup ]] && { setup=; shift; }
[[ -z "$setup" ]] || scripts/setup.sh

cmake --preset release "$@"
cmake --build build/release
ctest --test-dir build/release --label-regex '^(unit|parity|e2e|fuzz-smoke)$' --output-on-failure --no-tests=error \
  --parallel "$(nproc)"
