#!/usr/bin/env bash
# Sets up, builds, and answers a question about a picture with the model that ships in this repository.
#   scripts/demo.sh [--no-setup] [QUESTION]
set -euo pipefail
cd "$(dirname "$0")/.."

setup=yes
[[ "${1:-}" == --no-setup ]] && { setup=; shift; }
question="${1:-Describe the image.}"
model=assets/models/scenes-llava
picture=assets/eval/scenes/0000.png

[[ -z "$setup" ]] || scripts/setup.sh
# A fresh build folder is configured without the tests, and compiles several files of a layer as one, which takes half the time; scripts/test.sh
# adds the tests and uses what is built here.
options=()
[[ -e build/release/CMakeCache.txt ]] || options=(-DTRIPTYCH_TESTS=OFF -DCMAKE_UNITY_BUILD=ON)
cmake --preset release "${options[@]}" >/dev/null
cmake --build build/release --target triptych

printf '\n$ build/release/triptych run %s --image %s --prompt "%s"\n' "$model" "$picture" "$question"
build/release/triptych run "$model" --image "$picture" --prompt "$question"
