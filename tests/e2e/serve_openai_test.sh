#!/usr/bin/env bash
# The official Python client, where it is installed (pip install openai); PYTHON names an interpreter that has it.
set -euo pipefail
python="${PYTHON:-python3}"
if ! "$python" -c 'import openai' 2>/dev/null; then
  echo "SKIPPED: the Python package openai is not there (pip install openai; PYTHON=... names the interpreter)"
  exit 77
fi
out="$(mktemp -d)"
trap 'kill "$server" 2>/dev/null || true; rm -rf "$out"' EXIT
"$TRIPTYCH" serve assets/models/scenes-llava --port 0 --json >"$out/line" &
server=$!
for _ in $(seq 600); do [[ -s "$out/line" ]] && break; sleep 0.1; done
url="$(sed -n 's/.*"endpoints": *\["\([^"]*\)".*/\1/p' "$out/line")"
[[ -n "$url" ]] || { echo "no endpoint: $(cat "$out/line")"; exit 1; }
"$python" tests/e2e/openai_client.py "$url" assets/eval/scenes/0000.png
