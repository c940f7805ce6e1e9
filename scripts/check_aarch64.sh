#!/usr/bin/env bash
# Builds everything for 64-bit ARM with the cross compiler and runs its tests under qemu-user (ctest label aarch64).
#   scripts/check_aarch64.sh              the library, the program and every test that can run in an emulator
#   scripts/check_aarch64.sh --kernels    the program, the tests of the kernels and one answer of a whole model
#   --no-setup                            before either: expect cross compiler, emulator and libraries to be there
set -euo pipefail
cd "$(dirname "$0")/.."

setup=yes
targets=(all)
tests=(--label-regex '^aarch64$')
for arg in "$@"; do
  case "$arg" in
    --no-setup) setup= ;;
    --kernels)
      targets=(base_tests backend_cpu_tests media_tests triptych)
      tests+=(--tests-regex '^(unit\.(base|backend_cpu|media)_tests|run)(\.|$)')
      ;;
    *) sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
done
[[ -z "$setup" ]] || scripts/setup_aarch64.sh

cmake --preset aarch64 -DTRIPTYCH_WERROR=ON
cmake --build build/aarch64 --target "${targets[@]}"
ctest --test-dir build/aarch64 "${tests[@]}" --output-on-failure --no-tests=error --parallel "$(nproc)"
