#!/usr/bin/env bash
# Cross-builds for another machine what needs no GPU (scripts/portable.sh's compiler) and runs it under qemu-user: the tests unit, golden,
# fault and fuzz, those of the emulated device itself, and, with a release's folder, its Debian packages, its wheel (program and Python) and
# its core.trigen on the emulated device, with that machine's NVRTC where a kernel is compiled. Needs root (the kernel is told for the
# time of the run that qemu runs that machine's programs, which tests start), and what scripts/setup.sh --release installs.
# Usage: scripts/test_foreign.sh aarch64 [DIST]
#        TESTS='regular expression'  those alone, TESTS=  none;  JOBS=...  compilers and tests at once
set -euo pipefail
cd "$(dirname "$0")/.."
machine=${1:-}
dist=${2:-}
case $machine in aarch64) debian=arm64 ;; *) echo "test_foreign: found '$machine'; allowed is aarch64" >&2; exit 2 ;; esac
jobs=${JOBS:-$(nproc)}
root=$PWD/build-portable/$machine-root
if [[ ! -e $root/complete ]]; then
  rm -rf "$root"
  mkdir -p "$root"
  mmdebstrap --quiet --variant=extract --architectures=$debian --include=libc6,libgcc-s1,libstdc++6,zlib1g,python3,python3-minimal,libpython3-stdlib \
    bookworm "$root" http://deb.debian.org/debian
  touch "$root/complete"
fi
build=build-portable/$machine
if [[ ! -e $build/nvrtc/nvidia ]]; then
  rm -rf "$build/nvrtc"
  python3 -m pip install --quiet --no-deps --only-binary :all: --platform "manylinux2014_$machine" --target "$build/nvrtc" \
    --require-hashes -r scripts/pins/nvrtc.txt
fi
work=$(mktemp -d)
binfmt=/proc/sys/fs/binfmt_misc
registered= mounted=
clean() {
  [[ -z $registered ]] || echo -1 >"$binfmt/qemu-$machine"
  [[ -z $mounted ]] || umount "$binfmt"
  rm -rf "$work"
}
trap clean EXIT
[[ -e $binfmt/register ]] || { mount -t binfmt_misc binfmt_misc "$binfmt"; mounted=1; }
if [[ ! -e $binfmt/qemu-$machine ]]; then
  cat "/usr/lib/binfmt.d/qemu-$machine.conf" >"$binfmt/register"
  registered=1
fi
export QEMU_LD_PREFIX=$root

if [[ -n $dist ]]; then
  wheel=$(echo "$dist"/trigen-*_"$machine".whl)
  site=$work/site
  glibc=${wheel##*manylinux_2_}
  python3 -m pip install --quiet --no-index --no-deps --no-compile --platform "manylinux_2_${glibc%%_*}_$machine" --only-binary :all: --target "$site" "$wheel"
  export TRIGEN_CACHE=$work/cache.db TRIGEN_NVRTC=$PWD/$build/nvrtc
  "$site/trigen/bin/trigen" version
  "$site/trigen/bin/trigen" verify --device emulated:sm_70 forward,dtype=f16,B=1,T=40,D=16 grad_weight,dtype=f16,B=1,T=40,D=16
  "$site/trigen/bin/trigen" verify --device emulated:sm_90a forward,dtype=bf16,B=1,T=40,D=16
  PYTHONPATH=$site TRIGEN_DRIVER=$site/trigen/lib/libtrigen_emulator.so "$root/usr/bin/python3" examples/python/forward.py
  # The packages and the bundle, without a compiler: of each target the examples' problem.
  for deb in "$dist"/*_$debian.deb; do dpkg-deb -x "$deb" "$work/packages"; done
  export TRIGEN_CACHE=$dist/core.trigen TRIGEN_NVRTC=/nowhere TRIGEN_NO_JIT=1
  "$work/packages/usr/bin/trigen" cache ls
  for arch in sm_70 sm_80 sm_90a sm_120a; do
    "$work/packages/usr/bin/trigen" verify --no-jit --device "emulated:$arch" --problems containers/problems.txt
  done
  unset TRIGEN_CACHE TRIGEN_NVRTC TRIGEN_NO_JIT
fi
[[ -n ${TESTS-.} ]] || exit 0

# Of the emulated device those whose kernels are PTX text: NVRTC under qemu-user takes a minute a kernel.
device=(emulated_{abi,approximation,clocks,counter,driver,fault,hopper,instruction,memory,ptx_parser,real16,tensor_map}_test)
TRIGEN_TESTS=ON scripts/portable.sh "$machine" libtrigen.so trigen_emulator trigen_program tests_unit tests_golden tests_fault tests_fuzz "${device[@]}"
# unit.package builds an application with this machine's compiler; emulated.<small letter>... are sweeps that compile.
# The fuzz tests' fixed number of mutations takes minutes under qemu-user.
export TRIGEN_FUZZ_SECONDS=10
ctest --test-dir "$build" -j "$jobs" --output-on-failure -L '^(unit|golden|fault|fuzz|emulated)$' -E '^(unit\.package|emulated\.[a-z])' \
  ${TESTS:+-R "$TESTS"}
