#!/usr/bin/env bash
# Every table of bench/hopper.txt on this machine's GPU: first trigen beside cuBLAS, then the rows whose peers live in PyTorch, then
# all tables once more with the drawing. Results are flushed row by row. Kernels come from the cache (TRIGEN_CACHE); with
# TRIGEN_NO_JIT=1 nothing is compiled and rows say what is missing. How to tune them: README.md.
# Usage: bench/hopper.sh [folder] [tables by commas]     (build/bench, all)
# Environment: TRIGEN_PROGRAM (build/trigen), TRIGEN_BENCH_LIMIT, TRIGEN_BENCH_TORCH_LIMIT (seconds: 110, 40), TRIGEN_BENCH_ROW (0.6),
# TRIGEN_BENCH_LIST (bench/hopper.txt), TRIGEN_BENCH_OPTIONS (more options of `trigen bench`), PYTHON (python3).
set -uo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build/bench}
only=${2:-}
program=${TRIGEN_PROGRAM:-build/trigen}
list=${TRIGEN_BENCH_LIST:-bench/hopper.txt}
row=${TRIGEN_BENCH_ROW:-0.6}
results=$folder/$(basename "${list%.*}").jsonl
code=0
# shellcheck disable=SC2086
"$program" bench --tables "$list" ${only:+--only "$only"} --out "$folder" --limit "${TRIGEN_BENCH_LIMIT:-110}s" --row-time "${row}s" \
  ${TRIGEN_BENCH_OPTIONS:-} || code=$?
export PYTHONPATH=python${PYTHONPATH:+:$PYTHONPATH} TRIGEN_LIBRARY=${TRIGEN_LIBRARY:-$PWD/build/libtrigen.so}
if "${PYTHON:-python3}" -c 'import torch' 2>/dev/null; then
  "${PYTHON:-python3}" bench/torch_tables.py --tables "$list" ${only:+--only "$only"} --out "$results" --row-time "$row" \
    --limit "${TRIGEN_BENCH_TORCH_LIMIT:-40}" || code=$?
else
  echo "bench: no PyTorch here, so the rows with over=torch stay without a figure" >&2
fi
"$program" bench --render "$results" >"$folder/tables.txt" && cat "$folder/tables.txt"
exit $code
