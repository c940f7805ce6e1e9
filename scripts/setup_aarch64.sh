#!/usr/bin/env bash
# What a build for 64-bit ARM needs on another machine: the cross compiler and qemu-user (scripts/setup.sh --aarch64), and
# the arm64 packages of the libraries, unpacked into a folder of their own: nothing foreign is installed on this machine.
#   scripts/setup_aarch64.sh [FOLDER]       default build/sysroot-aarch64, or TRIPTYCH_SYSROOT
# The packages come from this machine's own package sources. A second run does nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup_aarch64: %s\n' "$*"; }
die() { printf 'setup_aarch64: %s\n' "$*" >&2; exit 1; }

sysroot="${1:-${TRIPTYCH_SYSROOT:-build/sysroot-aarch64}}"
mapfile -t packages < <(scripts/setup.sh --list | grep -- '-dev$')
scripts/setup.sh --aarch64

# shellcheck disable=SC1091
wanted="$(. /etc/os-release && printf '%s %s' "${VERSION_CODENAME:-unknown}" "${packages[*]}")"
stamp="$sysroot/.triptych-sysroot" # only a folder that this script made is ever removed
if [[ -e "$stamp" && "$(<"$stamp")" == "$wanted" ]]; then
  say "$sysroot is complete"
  exit 0
fi
[[ ! -e "$sysroot" || -e "$stamp" ]] || die "$sysroot exists and was not made by this script"
rm -rf --one-file-system "$sysroot"
mkdir -p "$sysroot"
touch "$stamp"

# A package manager's state of its own, in which arm64 is the only architecture and nothing is installed.
state="$(mktemp -d)"
trap 'rm -rf "$state"' EXIT
mkdir -p "$state/lists/partial" "$state/archives/partial"
touch "$state/status"
[[ "$(id -u)" != 0 ]] || chown -R _apt "$state/lists" "$state/archives" 2>/dev/null || true
chmod 755 "$state"
apt=(apt-get -qq -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 -o Acquire::Languages=none
  -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Debug::NoLocking=1
  -o Dir::State::lists="$state/lists" -o Dir::State::status="$state/status" -o Dir::Cache="$state"
  -o Dir::Cache::archives="$state/archives" -o DPkg::Post-Invoke= -o APT::Update::Post-Invoke=
  -o APT::Keep-Downloaded-Packages=true)

say "reading the lists of arm64 packages"
"${apt[@]}" update 2>"$state/update.log" || say "'apt-get update' failed for some source; going on with what it got"
"${apt[@]}" install --download-only --yes --no-install-recommends "${packages[@]}" >"$state/install.log" 2>&1 || {
  tail -n 5 "$state/update.log" "$state/install.log" >&2
  die "no arm64 packages from this machine's package sources (no network, or sources limited to another architecture)"
}
n=0
for deb in "$state"/archives/*.deb; do
  dpkg-deb --extract "$deb" "$sysroot"
  n=$((n + 1))
done
((n > 0)) || die "no package was downloaded"

# Links to absolute paths would lead out of the folder.
while IFS= read -r -d '' link; do
  target="$(readlink "$link")"
  [[ "$target" != /* ]] || ln -sfn "$(realpath -sm --relative-to="$(dirname "$link")" "$sysroot$target")" "$link"
done < <(find "$sysroot" -type l -print0)
[[ -e "$sysroot/lib" ]] || ln -s usr/lib "$sysroot/lib"
printf '%s\n' "$wanted" >"$stamp"
say "$n packages in $sysroot, $(du -sh "$sysroot" | cut -f1)"
