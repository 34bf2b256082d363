#!/usr/bin/env bash
# Runs a wheel where glibc is older than this machine's: Debian 11 (2.31, Python 3.9), made by mmdebstrap, with NVRTC beside it. Says [SKIP]
# where Debian 11 cannot be had; what 2.28 lacks of 2.31 is read from the symbols (scripts/build_wheel.sh, auditwheel).
# Usage: scripts/test_old_glibc.sh WHEEL      (root)
set -euo pipefail
cd "$(dirname "$0")/.."
wheel=$1
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
if [[ $(id -u) != 0 || ! -e $keyring ]] || ! command -v mmdebstrap >/dev/null ||
  ! mmdebstrap --quiet --variant=extract --include=libc6,libc-bin,dash,coreutils,python3,python3-minimal,libpython3-stdlib bullseye "$root/os" \
    "deb [signed-by=$keyring] http://deb.debian.org/debian bullseye main" 2>"$root/log"; then
  echo "[SKIP] an old glibc: Debian 11 cannot be made here $(tail -n 1 "$root/log" 2>/dev/null)"
  exit 0
fi
mkdir -p "$root/os/opt/site" "$root/os/opt/nvrtc" "$root/os/proc" "$root/os/tmp"
python3 -m pip install --quiet --no-index --no-deps --no-compile --target "$root/os/opt/site" "$wheel"
cp -r build/nvrtc/nvidia "$root/os/opt/nvrtc/"
cp examples/python/forward.py "$root/os/opt/"
inside() {
  unshare -m bash -c 'mount --bind /proc "$1/proc"; root=$1; shift; exec chroot "$root" env -i HOME=/tmp PYTHONPATH=/opt/site TRIGEN_NVRTC=/opt/nvrtc PATH=/usr/bin:/bin:/opt/site/trigen/bin "$@"' - "$root/os" "$@"
}
inside python3 -c 'import os, sys; print(os.confstr("CS_GNU_LIBC_VERSION"), sys.version.split()[0])'
inside trigen version
inside trigen verify --device emulated:sm_70 forward,dtype=f16,B=1,T=40,D=16 grad_weight,dtype=f16,B=1,T=40,D=16
inside TRIGEN_DRIVER=/opt/site/trigen/lib/libtrigen_emulator.so python3 /opt/forward.py
