#!/usr/bin/env bash
# clang-tidy over the project's host sources (.clang-tidy lists the checks; any finding fails).
# Usage: scripts/tidy.sh [--quick] [folder... | file...]   (default: every folder, many sources in one translation unit, so that the
# headers of LLVM are read and checked 20 times and not 160; generator/families, whose sources have names in common, file by file)
#   --quick   the analyzer follows a fifth of the paths of a function that has many: half the time. It goes to code that it has not seen
#             first, so what is left out are more ways to the same lines
set -euo pipefail
cd "$(dirname "$0")/.."
# clang's analyzer goes through the functions of a unit's sources, as through a file's own and not through all headers, where the
# unit's path has this word in it (AnalysisManager::isInCodeFile).
build=build-tidy/UnifiedSource
folders='generator|numerics|cache|runtime|doctor|check|tuner|peers|cli|lab|emulator'
options=()
if [[ ${1:-} == --quick ]]; then
  shift
  for word in -Xclang -analyzer-config -Xclang max-nodes=45000; do options+=(--extra-arg="$word"); done
fi
if [[ -d ${1:-} ]]; then
  folders=$(IFS='|' && echo "$*")
  set --
fi
mkdir -p "$build"
cmake --preset tidy -B "$build" -DCMAKE_CXX_COMPILER=clang++-14 -DCMAKE_C_COMPILER=clang-14 -DTRIGEN_PCH=OFF \
  -DTRIGEN_UNITY="$([[ $# == 0 ]] && echo ON || echo OFF)" -DTRIGEN_TESTS=OFF -DTRIGEN_BENCH=OFF >"$build/configure.log" \
  || { cat "$build/configure.log"; exit 1; }
files=("$@")
if [[ ${#files[@]} == 0 ]]; then
  mapfile -t files < <(python3 -c '
import json
for entry in json.load(open("'"$build"'/compile_commands.json")):
    if entry["file"].endswith(".cpp") and "/build-tidy/" not in entry["file"] or "/Unity/" in entry["file"]:
        print(entry["file"])' | grep -E "^$PWD/(build-tidy/UnifiedSource/)?($folders)/")
  # The sources in a unity file are headers to clang-tidy: findings there count.
  options+=(--header-filter="/($folders)/.*\.(h|cpp)$"
            --checks=-bugprone-suspicious-include)
fi
# Standard error is a count of warnings in other people's headers; of a crash, too, a line says which file it was.
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -n 1 bash -c \
  'clang-tidy-14 --quiet "$@" 2>/dev/null || { echo "tidy: ${!#} (status $?)"; exit 1; }' _ -p "$build" ${options[@]+"${options[@]}"}
