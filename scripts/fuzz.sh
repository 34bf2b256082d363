#!/usr/bin/env bash
# Builds the libFuzzer programs (clang 14, with the address and undefined-behaviour sanitizers) into build-fuzz and runs each for so
# long. Needs scripts/setup.sh --dev, no GPU.
# Usage: scripts/fuzz.sh [SECONDS [keep]]   (60)
# The corpus stays in build-fuzz/corpus; `keep` writes the smallest part that reaches every edge to
# tests/fuzz/ptx_found.zst, which fuzz.Ptx runs on every commit. A finding ends the run; it is build-fuzz/crash-*: the
# program repeats it when given its path.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60} keep=${2:-}
launcher=$(command -v ccache || true)
corpus=build-fuzz/corpus found=tests/fuzz/ptx_found.zst
mkdir -p $corpus/generator_parsers
cmake -S . -B build-fuzz -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_C_COMPILER=clang-14 -DCMAKE_CXX_COMPILER=clang++-14 \
  -DTRIGEN_TESTS=ON -DTRIGEN_SANITIZE=ON ${launcher:+-DCMAKE_CXX_COMPILER_LAUNCHER=$launcher} >build-fuzz/configure.log || {
  cat build-fuzz/configure.log
  exit 1
}
cmake --build build-fuzz --target fuzz_ptx_fuzzer fuzz_generator_parsers_fuzzer
options=(-timeout=20 -rss_limit_mb=3000 -artifact_prefix=build-fuzz/)
zstd -dqf $found -o build-fuzz/found.txt
python3 tests/fuzz/found.py unpack $corpus/ptx build-fuzz/found.txt
build-fuzz/tests/fuzz_ptx_fuzzer -max_len=16384 -max_total_time="$seconds" -print_final_stats=1 "${options[@]}" $corpus/ptx tests/fuzz/ptx
build-fuzz/tests/fuzz_generator_parsers_fuzzer -max_total_time="$seconds" -print_final_stats=1 "${options[@]}" $corpus/generator_parsers
[[ $keep == keep ]] || exit 0
rm -rf $corpus/least && mkdir $corpus/least
build-fuzz/tests/fuzz_ptx_fuzzer -merge=1 -max_len=2000 -use_counters=0 "${options[@]}" $corpus/least tests/fuzz/ptx $corpus/ptx
python3 tests/fuzz/found.py pack $corpus/least build-fuzz/found.txt
zstd -19 -qf build-fuzz/found.txt -o $found
