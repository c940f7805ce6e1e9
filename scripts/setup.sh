#!/usr/bin/env bash
# Installs the Debian packages that README's dependency table lists, and nothing else.
#   scripts/setup.sh          what a build with its tests needs
#   scripts/setup.sh --dev    and what the full checks need: clang, its tools and runtimes, benchmarks, Python
#   scripts/setup.sh --aarch64    and the cross compiler and emulator (scripts/setup_aarch64.sh asks for it)
# Debian 12 and 13; Ubuntu 22.04 and 24.04 should have the same names (not tried). A second run installs nothing.
set -euo pipefail

# Keep the lists in step with the table in README.md (tools/check_docs.py compares them).
base_packages=(
  build-essential cmake ninja-build pkg-config git
  libfmt-dev libspdlog-dev nlohmann-json3-dev libcli11-dev libedit-dev
  libpng-dev zlib1g-dev libjpeg-dev libwebp-dev libgif-dev libtiff-dev
  libpcre2-dev libutf8proc-dev libsentencepiece-dev libsodium-dev libeigen3-dev libyaml-cpp-dev
  libboost-dev libssl-dev
  libgtest-dev libgmock-dev curl
)
dev_packages=(ccache clang clang-format clang-tidy libclang-rt-dev libbenchmark-dev libjemalloc2 libmimalloc-dev python3)
aarch64_packages=(g++-aarch64-linux-gnu qemu-user-static)

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

packages=("${base_packages[@]}")
for arg in "$@"; do
  case "$arg" in
    --dev) packages+=("${dev_packages[@]}") ;;
    --aarch64) packages+=("${aarch64_packages[@]}") ;;
    --list) printf '%s\n' "${packages[@]}"; exit 0 ;;
    -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) die "unknown argument '$arg' (expected --dev, --aarch64, --list or --help)" ;;
  esac
done

command -v apt-get >/dev/null && command -v dpkg-query >/dev/null ||
  die "apt-get is missing: this script serves Debian 12, 13 and Ubuntu 22.04, 24.04. README.md lists what to install by hand."
# shellcheck disable=SC1091
system="$(. /etc/os-release && printf '%s' "${PRETTY_NAME:-unknown system}")"

installed() {
  dpkg-query -W -f='${db:Status-Abbrev}' "$1" 2>/dev/null | grep -q '^ii' && return
  [[ "$1" == libclang-rt-dev ]] && compgen -G '/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a' >/dev/null
}
available() { apt-cache show --no-all-versions "$1" >/dev/null 2>&1; }

# Where clang's runtimes have no package of their own (Ubuntu 22.04), they come with its common files.
clang_runtime_fallback() {
  local major
  major="$(apt-cache depends clang 2>/dev/null | sed -n 's/^ *Depends: clang-\([0-9]*\)$/\1/p' | head -n 1)"
  [[ -n "$major" ]] && printf 'libclang-common-%s-dev' "$major"
}

missing=()
for package in "${packages[@]}"; do
  installed "$package" || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  say "$system: all ${#packages[@]} packages are installed"
  exit 0
fi

as_root=()
if [[ "$(id -u)" != 0 ]]; then
  command -v sudo >/dev/null || die "not root and sudo is missing; as root run: apt-get install ${missing[*]}"
  as_root=(sudo)
fi
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o Acquire::Retries=3)

say "$system: to install: ${missing[*]}"
update_failed=
"${apt[@]}" -o APT::Update::Error-Mode=any update || update_failed=yes

wanted=()
unknown=()
for package in "${missing[@]}"; do
  if available "$package"; then
    wanted+=("$package")
  elif [[ "$package" == libclang-rt-dev ]] && fallback="$(clang_runtime_fallback)" && available "$fallback"; then
    installed "$fallback" || wanted+=("$fallback")
  else
    unknown+=("$package")
  fi
done
if ((${#unknown[@]} > 0)); then
  [[ -z "$update_failed" ]] || die "'apt-get update' failed (see above: network, proxy or a broken source?); not known without it: ${unknown[*]}"
  die "$system has no package: ${unknown[*]} (on Ubuntu enable 'universe'; otherwise install an equivalent by hand)"
fi
[[ -z "$update_failed" ]] || say "'apt-get update' failed for some source; going on with the package lists at hand"
((${#wanted[@]} == 0)) ||
  "${apt[@]}" install --yes --no-install-recommends "${wanted[@]}" >/dev/null ||
  die "'apt-get install' failed (see above); the packages were: ${wanted[*]}"

for package in "${wanted[@]}"; do
  installed "$package" || die "$package was not installed, though apt-get reported no error"
done
say "done"
