#!/usr/bin/env bash
# From a fresh Debian 12 or Ubuntu 24.04 machine to tuned kernels: installs what the build needs, builds build/trigen, and
# runs `trigen tune --arch sm_70` on the core problem list. With a V100 here the choices are measured; without one they are
# the cost model's, stored as "predicted" and verified on the emulated device. Idempotent.
# Usage: scripts/quickstart.sh [arch]
set -euo pipefail
cd "$(dirname "$0")/.."
arch=${1:-sm_70}
say() { printf '\n==> %s\n' "$*"; }

scripts/setup.sh
say "building build/trigen"
launcher=$(command -v ccache || true)
cmake --preset install ${launcher:+-DCMAKE_CXX_COMPILER_LAUNCHER=$launcher} >build/configure.log \
  || { cat build/configure.log; exit 1; }
cmake --build --preset release

export TRIGEN_CACHE=${TRIGEN_CACHE:-$PWD/build/quickstart.db}
say "what this machine has (trigen doctor)"
build/trigen doctor || true
say "tuning the core problem list for ${arch} into ${TRIGEN_CACHE}"
build/trigen tune --arch "${arch}"
part=()
ls /dev/nvidia[0-9]* >/dev/null 2>&1 || part=(--samples 1 --limit 1e10)
say "verifying the choices${part:+ (no GPU here: on the emulated device, which is slow, so one sample of each batch)}"
build/trigen verify --list core --arch "${arch}" --no-jit "${part[@]}"
say "the cache file"
build/trigen cache ls
say "one of its kernels (the low byte of e_flags is the architecture: 0x46 is 70)"
build/trigen cache show "$(grep -m1 '^forward' problems/core.txt)"
say "done. Next: build/trigen --help, and docs/how-to/look-inside.md. Use this cache with: export TRIGEN_CACHE=${TRIGEN_CACHE}"
