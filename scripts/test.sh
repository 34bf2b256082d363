#!/usr/bin/env bash
# Sets up, builds and passes the tests: format check, release build with every ctest label, attacks, Python, sanitizer build of the
# host tests, clang-tidy. Works with or without a GPU (tests that need one say [SKIP] and why). Idempotent. Ends with each step's minutes.
# Usage: scripts/test.sh [--fast | --all]
#   --fast  release build and its C++ tests only
#   --all   every case of the sweeps (a run without it takes a fixed part of each: tests/README.md), clang-tidy over every host
#           source (a run without it: generator/), a minute of each libFuzzer program (scripts/fuzz.sh; their build takes three of
#           a core), and a release's artefacts (scripts/release.sh)
# PyTorch's tests run where torch is; CI=true or TRIGEN_TEST_TORCH=1 installs it into build/python-venv (several GB from PyPI).
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-}
case $mode in '' | --fast | --all) ;; *)
  echo "test.sh: found '$mode'; allowed are --fast and --all" >&2
  exit 2
  ;;
esac
jobs=$(nproc)
steps=() step='' since=$SECONDS
say() {
  [[ -z $step ]] || steps+=("$(printf '%4d min %02d s  %s' $(((SECONDS - since) / 60)) $(((SECONDS - since) % 60)) "$step")")
  step=$* since=$SECONDS
  printf '\n==> %s (%s)\n' "$*" "$(date +%T)"
}
finish() {
  say "all checks passed"
  printf '%s\n' "${steps[@]}"
  exit 0
}

say "packages"
scripts/setup.sh --dev
launcher=$(command -v ccache || true)
options=(-DTRIGEN_UNITY=ON ${launcher:+-DCMAKE_CXX_COMPILER_LAUNCHER=$launcher -DCMAKE_C_COMPILER_LAUNCHER=$launcher})
export CCACHE_SLOPPINESS=pch_defines,time_macros  # or ccache takes nothing that uses precompiled headers

if [[ $mode != --fast ]]; then
  say "clang-format"
  git ls-files '*.h' '*.hpp' '*.cpp' '*.c' '*.cuh' '*.cu' | xargs clang-format-14 --dry-run --Werror
fi
say "release build"
cmake --preset release -DTRIGEN_TESTS=ON -DTRIGEN_BENCH=ON -DTRIGEN_PACKAGES=ON "${options[@]}" >build/configure.log || { cat build/configure.log; exit 1; }
cmake --build --preset release
say "tests"
export TRIGEN_TEST_NVRTC13=$PWD/build/nvrtc13
# A checkout may belong to another uid than the tests' (containers of CI), or lie where everybody may write.
export TRIGEN_TRUSTED_FOLDERS=$PWD
some=(-LE '^all$')
if [[ $mode == --all ]]; then
  export TRIGEN_TEST_ALL=1
  some=()
fi
ctest --test-dir build --output-on-failure -j "$jobs" ${some[@]+"${some[@]}"}
[[ $mode != --fast ]] || finish

say "attacks"
scripts/attack.sh

# What users get is downloads, roots and archives for the most part, one after the other: beside Python's tests, the sanitizers' build and
# tests and clang-tidy, which keep the cores busy meanwhile. What it says is printed at the end.
what_users_get() {
  set -e
  echo "documentation"
  if [[ -n ${CI:-} ]]; then scripts/docs.sh --install; else scripts/docs.sh; fi
  echo "packages, wheel and images"
  scripts/test_packages.sh build
  echo "a newcomer's machine: README and the tutorials in a bare root"
  if [[ $mode == --all ]]; then scripts/test_newcomer.sh; else SUITES=bookworm scripts/test_newcomer.sh; fi
  echo "after $((SECONDS - since)) s"
}
say "Python"
(what_users_get) >build/what_users_get.log 2>&1 &
users=$!
trap wait EXIT  # a step that fails leaves nothing running behind it
if [[ -n ${CI:-} || -n ${TRIGEN_TEST_TORCH:-} ]]; then
  TRIGEN_TORCH=torch==2.13.0 scripts/test_python.sh --install
else
  scripts/test_python.sh
fi

say "address and undefined-behaviour sanitizers: build"
mkdir -p build-asan
cmake --preset asan -DTRIGEN_BENCH=OFF "${options[@]}" >build-asan/configure.log || { cat build-asan/configure.log; exit 1; }
# A quick run takes what handles bytes that come from outside (CALCULATES in tests/CMakeLists.txt), and of that no test that compiles or
# calculates for long on paths that others take, too (LONG_WITH_SANITIZERS in tests/thorough.h).
sanitized=(tests_sanitized) some=(-LE '^calculates$')
if [[ $mode == --all ]]; then
  sanitized=(tests_unit tests_golden tests_fault tests_fuzz)
  some=()
fi
cmake --build --preset asan --target "${sanitized[@]}"

say "address and undefined-behaviour sanitizers: tests"
ln -sfn ../build/nvrtc build-asan/nvrtc
# The sanitizer guesses the layout of glibc's blocks for threads' variables by their place in a page; where it is wrong LeakSanitizer
# faults ("Tracer caught signal 11") after a test that passed.
ASAN_OPTIONS=intercept_tls_get_addr=0 ctest --test-dir build-asan --output-on-failure -j "$jobs" -L 'unit|golden|fault|fuzz' ${some[@]+"${some[@]}"}

if [[ $mode == --all ]]; then
  say "libFuzzer"
  scripts/fuzz.sh
fi

say "clang-tidy"
if [[ $mode == --all ]]; then
  scripts/tidy.sh
else
  scripts/tidy.sh --quick generator
fi

say "what is left of documentation, packages, wheel, images and a newcomer's machine"
wait $users || { cat build/what_users_get.log; echo "test.sh: documentation, packages or the newcomer's machine failed" >&2; exit 1; }
cat build/what_users_get.log
if [[ $mode == --all ]]; then
  say "release: wheels and packages for glibc 2.28"
  LISTS=core scripts/release.sh
fi
finish
