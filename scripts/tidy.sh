#!/usr/bin/env bash
# clang-tidy over the project's host sources (.clang-tidy lists the checks; any finding fails).
# Usage: scripts/tidy.sh [file...]   (default: every host source)
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build-tidy
cmake --preset tidy -DCMAKE_CXX_COMPILER=clang++-14 -DCMAKE_C_COMPILER=clang-14 >build-tidy/configure.log \
  || { cat build-tidy/configure.log; exit 1; }
files=("$@")
if [[ ${#files[@]} == 0 ]]; then
  mapfile -t files < <(git ls-files 'generator/*.cpp' 'cache/*.cpp' 'runtime/*.cpp' 'check/*.cpp' 'tuner/*.cpp' 'peers/*.cpp' 'cli/*.cpp' 'emulator/*.cpp')
fi
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy-14 --quiet -p build-tidy 2>/dev/null
