#!/usr/bin/env bash
# Builds libtrigen.so, the emulated device and the trigen program for Linux with glibc 2.28 or later (RHEL 8, Debian 10, Ubuntu 18.10
# and what came after), into build-portable/<machine>: what wheels and packages are made of. The compiler is PyPI's ziglang, which holds
# clang, libc++ and the symbols of every glibc, so any machine builds the same and x86_64 builds for aarch64.
# Usage: scripts/portable.sh [x86_64|aarch64] [cmake targets]      (default: this machine's, the three above)
#        GLIBC=2.28  the oldest glibc;  JOBS=...  compilers at once
set -euo pipefail
cd "$(dirname "$0")/.."
machine=${1:-$(uname -m)}
case $machine in x86_64 | aarch64) ;; *)
  echo "portable: found '$machine'; allowed are x86_64 and aarch64" >&2
  exit 2
  ;;
esac
shift || true
targets=("$@")
if [[ ${#targets[@]} == 0 ]]; then
  targets=(libtrigen.so trigen_emulator trigen_program)
  [[ $machine != "$(uname -m)" ]] || targets+=(trigen_pages)
fi
glibc=${GLIBC:-2.28}
root=$PWD/build-portable

python=$root/venv/bin/python
if [[ ! -e $root/ziglang.json ]] || ! "$python" -m ziglang version >/dev/null 2>&1; then
  mkdir -p "$root"
  python3 -m venv --clear "$root/venv"
  # The report names the wheel that was installed and its SHA-256 (scripts/sbom.py reads it).
  "$python" -m pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes --report "$root/ziglang.json" -r scripts/pins/ziglang.txt
fi
scripts/portable_sources.sh "$root/sources"

tools=$root/tools-$machine-$glibc
mkdir -p "$tools"
for tool in cc c++ ar ranlib; do
  target=
  case $tool in cc | c++) target="-target $machine-linux-gnu.$glibc" ;; esac
  printf '#!/bin/sh\nexec %s -m ziglang %s %s "$@"\n' "$python" "$tool" "$target" >"$tools/zig-$tool"
  chmod +x "$tools/zig-$tool"
done

launcher=$(command -v ccache || true)
export CCACHE_COMPILERTYPE=clang CCACHE_COMPILERCHECK="string:ziglang 0.17.1 $machine $glibc"
cmake -S . -B "$root/$machine" -G Ninja -DCMAKE_BUILD_TYPE=Release --toolchain "$PWD/cmake/zig.cmake" \
  -DTRIGEN_ZIG_TARGET="$machine-linux-gnu.$glibc" -DTRIGEN_ZIG_TOOLS="$tools" -DTRIGEN_BUNDLED=ON -DTRIGEN_SOURCES="$root/sources" \
  -DTRIGEN_PACKAGES=ON -DTRIGEN_GLIBC="$glibc" -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_LIBDIR=lib \
  -DTRIGEN_PCH=OFF -DTRIGEN_UNITY=ON -DTRIGEN_BENCH=OFF -DTRIGEN_TESTS="${TRIGEN_TESTS:-OFF}" \
  ${launcher:+-DCMAKE_CXX_COMPILER_LAUNCHER=$launcher -DCMAKE_C_COMPILER_LAUNCHER=$launcher} >"$root/$machine.log" 2>&1 ||
  { cat "$root/$machine.log" >&2; exit 1; }
cmake --build "$root/$machine" -j "${JOBS:-$(nproc)}" --target "${targets[@]}"
