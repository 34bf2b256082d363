#!/usr/bin/env bash
# Sets up, builds and passes the tests: format check, release build with every ctest label, sanitizer build of the host
# tests, clang-tidy. Works with or without a GPU (tests that need one say [SKIP] and why). Idempotent.
# Usage: scripts/test.sh [--fast]   (--fast: release build and its C++ tests only)
# PyTorch's tests run where torch is; CI=true or TRIGEN_TEST_TORCH=1 installs it into build/python-venv (several GB from PyPI).
set -euo pipefail
cd "$(dirname "$0")/.."
fast=${1:-}
jobs=$(nproc)
say() { printf '\n==> %s (%s)\n' "$*" "$(date +%T)"; }

scripts/setup.sh --dev
launcher=$(command -v ccache || true)
options=(${launcher:+-DCMAKE_CXX_COMPILER_LAUNCHER=$launcher} ${launcher:+-DCMAKE_C_COMPILER_LAUNCHER=$launcher})

if [[ $fast != --fast ]]; then
  say "clang-format"
  git ls-files '*.h' '*.hpp' '*.cpp' '*.c' '*.cuh' '*.cu' | xargs clang-format-14 --dry-run --Werror
fi
say "release build"
cmake --preset release -DTRIGEN_TESTS=ON -DTRIGEN_BENCH=ON "${options[@]}" >build/configure.log || { cat build/configure.log; exit 1; }
cmake --build --preset release
say "tests"
export TRIGEN_TEST_NVRTC13=$PWD/build/nvrtc13
# A checkout may belong to another uid than the tests' (containers of CI), or lie where everybody may write.
export TRIGEN_TRUSTED_FOLDERS=$PWD
ctest --test-dir build --output-on-failure -j "$jobs"
[[ $fast == --fast ]] && exit 0

say "Python"
if [[ -n ${CI:-} || -n ${TRIGEN_TEST_TORCH:-} ]]; then
  TRIGEN_TORCH=torch==2.13.0 scripts/test_python.sh --install
else
  scripts/test_python.sh
fi

say "address and undefined-behaviour sanitizers: build"
mkdir -p build-asan
cmake --preset asan -DTRIGEN_BENCH=OFF "${options[@]}" >build-asan/configure.log || { cat build-asan/configure.log; exit 1; }
cmake --build --preset asan
say "address and undefined-behaviour sanitizers: tests"
ln -sfn ../build/nvrtc build-asan/nvrtc
ctest --test-dir build-asan --output-on-failure -j "$jobs" -L 'unit|golden|fault|fuzz'

say "clang-tidy"
scripts/tidy.sh
say "all checks passed"
