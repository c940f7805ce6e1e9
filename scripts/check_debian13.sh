#!/usr/bin/env bash
# Runs README's two commands on a fresh Debian 13: a minimal system in a folder, a clone of what is committed here, then
# scripts/demo.sh and scripts/test.sh inside it. Needs root, debootstrap and git, about 3 GB, and a Debian mirror.
#   scripts/check_debian13.sh [--keep] [FOLDER]     FOLDER is made anew (default /var/tmp/triptych-debian13)
#   COMMANDS='...' scripts/check_debian13.sh         other commands, run by bash in the clone
# DEBIAN_MIRROR names another mirror than http://deb.debian.org/debian.
set -euo pipefail
cd "$(dirname "$0")/.."

keep=
[[ "${1:-}" == --keep ]] && { keep=yes; shift; }
root="${1:-/var/tmp/triptych-debian13}"
mirror="${DEBIAN_MIRROR:-http://deb.debian.org/debian}"
commands="${COMMANDS:-scripts/demo.sh && scripts/test.sh}"
marker=.triptych-check  # only a folder that this script made is ever removed

die() { printf 'check_debian13: %s\n' "$*" >&2; exit 1; }
[[ "$(id -u)" == 0 ]] || die "needs root (chroot, mount)"
for tool in debootstrap git unshare; do
  command -v "$tool" >/dev/null || die "$tool is missing (apt-get install debootstrap git util-linux)"
done
if [[ -e "$root" ]]; then
  [[ -e "$root/$marker" ]] || die "$root exists and was not made by this script"
  rm -rf --one-file-system "$root"
fi

mkdir -p "$root"
touch "$root/$marker"
echo "check_debian13: a minimal system from $mirror in $root"
debootstrap --variant=minbase trixie "$root" "$mirror" >"$root/debootstrap.log" 2>&1 ||
  die "debootstrap failed: $(tail -n 3 "$root/debootstrap.log")"
cp /etc/resolv.conf /etc/hosts "$root/etc/"
git clone --quiet --no-hardlinks "file://$PWD" "$root/root/triptych"

# The mounts live in a namespace of their own and are gone when the commands end.
status=0
unshare --mount bash -euo pipefail -c '
  mount --rbind /dev "$1/dev"  # terminals of the tests are in dev/pts
  mount -t proc proc "$1/proc"
  mount -t sysfs sysfs "$1/sys"
  exec chroot "$1" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    http_proxy="${http_proxy:-}" https_proxy="${https_proxy:-}" \
    bash -euo pipefail -c "cd /root/triptych; $2"' check "$root" "$commands" || status=$?

[[ -n "$keep" ]] || rm -rf --one-file-system "$root"
((status == 0)) || die "failed with status $status: $commands"
echo "check_debian13: passed: $commands"
