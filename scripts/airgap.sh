#!/usr/bin/env bash
# One file that installs trigen where no network is: the wheel, NVRTC and bundles of tuned kernels with their signatures
# (BUNDLE.minisig, where it is there), with an installer.
# Usage: scripts/airgap.sh [-o ARCHIVE] WHEEL [BUNDLE...]      (default: dist/trigen-airgap-<machine>.tar)
#        NVRTC=VERSION picks another compiler than scripts/pins's from PyPI; NVRTC= leaves it out (the bundles answer, or a plan fails)
# There: tar xf ARCHIVE && trigen-airgap/install.sh [PYTHON]   (default: python3, of the environment that is to have it)
set -euo pipefail
cd "$(dirname "$0")/.."
archive=
[[ ${1:-} != -o ]] || { archive=$2; shift 2; }
[[ $# -gt 0 && -f $1 ]] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
wheel=$1
shift
machine=${wheel##*_2_}
machine=${machine#*_}
machine=${machine%.whl}
archive=${archive:-dist/trigen-airgap-$machine.tar}
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
folder=$stage/trigen-airgap
mkdir "$folder"
cp "$wheel" "$folder/"
for bundle in ${1+"$@"}; do
  [[ $bundle != *.minisig ]] || continue  # goes with its bundle
  cp "$bundle" "$folder/"
  [[ ! -e $bundle.minisig ]] || cp "$bundle.minisig" "$folder/"
done
compiler=(--require-hashes -r scripts/pins/nvrtc.txt)
[[ -z ${NVRTC+set} ]] || compiler=(${NVRTC:+"nvidia-cuda-nvrtc-cu12==$NVRTC"})
if [[ ${#compiler[@]} -gt 0 ]]; then
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --platform "manylinux2014_$machine" \
    --dest "$folder" "${compiler[@]}"
fi
cat >"$folder/install.sh" <<'INSTALL'
#!/bin/sh
# Installs trigen, its compiler and its bundles from this folder into the environment of $1 (python3); needs no network.
set -eu
python=${1:-python3}
case $python in */*) python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python") ;; esac
cd "$(dirname "$0")"
sha256sum --quiet -c SHA256SUMS || { echo "install.sh: files here are not those of SHA256SUMS; fetch the archive again" >&2; exit 1; }
"$python" -m pip install --quiet --no-index --no-deps ./*.whl
share=$("$python" -c 'import sys; print(sys.prefix)')/share/trigen
mkdir -p "$share"
for bundle in ./*.trigen ./*.minisig; do
  [ ! -e "$bundle" ] || install -m 644 "$bundle" "$share/"
done
"$python" -m trigen cache ls | tail -n 3
echo "trigen is installed for $python; bundles are in $share"
INSTALL
chmod +x "$folder/install.sh"
(cd "$folder" && shopt -s nullglob && sha256sum ./*.whl ./*.trigen ./*.minisig >SHA256SUMS)
mkdir -p "$(dirname "$archive")"
tar -C "$stage" --owner=0 --group=0 --sort=name --mtime=@0 -cf "$archive" trigen-airgap
ls -l "$archive"
