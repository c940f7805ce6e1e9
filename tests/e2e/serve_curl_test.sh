#!/usr/bin/env bash
# The commands that docs/serving.md shows, as it shows them, against a server of its own.
set -euo pipefail
command -v curl >/dev/null || { echo "curl is missing: scripts/setup.sh installs it"; exit 1; }
out="$(mktemp -d)"
trap 'kill "$server" 2>/dev/null || true; rm -rf "$out"' EXIT
"$TRIPTYCH" serve assets/models/scenes-llava --port 0 --json >"$out/line" &
server=$!
for _ in $(seq 600); do [[ -s "$out/line" ]] && break; sleep 0.1; done
url="$(sed -n 's/.*"endpoints": *\["\([^"]*\)".*/\1/p' "$out/line")"
[[ -n "$url" ]] || { echo "no endpoint: $(cat "$out/line")"; exit 1; }
# Blocks that are marked bash; each has to end well, and answers are no errors.
awk '/^```bash$/ {on = 1; n++; next} /^```$/ {on = 0} on {print > "'"$out"'/block" n ".sh"}' docs/serving.md
n=0
for block in "$out"/block*.sh; do
  sed "s|http://127.0.0.1:8000|$url|g" "$block" >"$block.run"
  bash -euo pipefail "$block.run" >"$out/answer" || { echo "failed: $(cat "$block")"; exit 1; }
  if [[ ! -s "$out/answer" ]] || grep -q '"error":' "$out/answer"; then
    echo "$(cat "$block") answered: $(cat "$out/answer")"
    exit 1
  fi
  n=$((n + 1))
done
grep -q "a small purple circle at the top left" <(bash -c "$(sed "s|http://127.0.0.1:8000|$url|g" "$out/block1.sh")")
((n >= 5)) || { echo "docs/serving.md shows $n commands; at least 5 were expected"; exit 1; }
echo "$n commands of docs/serving.md"
