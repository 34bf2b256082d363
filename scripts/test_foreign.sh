#!/usr/bin/env bash
# Runs another machine's build under qemu-user: host tests (unit, golden, fuzz), and the wheel's program on the emulated device with that
# machine's NVRTC.
# Usage: scripts/test_foreign.sh MACHINE WHEEL
set -euo pipefail
cd "$(dirname "$0")/.."
machine=$1
wheel=$2
case $machine in aarch64) debian=arm64 ;; *) echo "test_foreign: found '$machine'; allowed is aarch64" >&2; exit 2 ;; esac
root=build-portable/$machine-root
if [[ ! -e $root/complete ]]; then
  rm -rf "$root"
  mkdir -p "$root"
  mmdebstrap --quiet --variant=extract --architectures=$debian --include=libc6,libgcc-s1,libstdc++6,zlib1g bookworm "$root" http://deb.debian.org/debian
  touch "$root/complete"
fi
emulate=("qemu-$machine-static" -L "$PWD/$root")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip install --quiet --no-index --no-deps --no-compile --platform "manylinux_${GLIBC/./_}_$machine" --only-binary :all: --target "$work/site" "$wheel"
NVRTC=12.9.86
python3 -m pip install --quiet --no-deps --only-binary :all: --platform manylinux2014_$machine --target "$work/nvrtc" nvidia-cuda-nvrtc-cu12==$NVRTC
export TRIGEN_CACHE=$work/cache.db TRIGEN_NVRTC=$work/nvrtc
trigen=$work/site/trigen/bin/trigen
"${emulate[@]}" "$trigen" version
"${emulate[@]}" "$trigen" verify --device emulated:sm_70 forward,dtype=f16,B=1,T=40,D=16 grad_weight,dtype=f16,B=1,T=40,D=16
"${emulate[@]}" "$trigen" verify --device emulated:sm_90a forward,dtype=bf16,B=1,T=40,D=16

TRIGEN_TESTS=ON scripts/portable.sh "$machine" tests_unit tests_golden tests_fuzz
failed=0
for program in build-portable/"$machine"/tests/{unit,golden,fuzz}_*; do
  [[ -x $program && ! -d $program ]] || continue
  "${emulate[@]}" "$program" --gtest_brief=1 || { echo "failed: $program"; failed=1; }
done
exit $failed
