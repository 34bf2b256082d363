#!/usr/bin/env bash
# Every table of bench/hopper.txt on this machine's GPU: first trigen beside cuBLAS, then the rows whose peers live in PyTorch, then
# all tables once more with the drawing. Results are flushed row by row. Kernels come from the cache (TRIGEN_CACHE), tuned or not;
# TRIGEN_BENCH_TUNE tunes the tables first. With TRIGEN_NO_JIT=1 nothing is compiled and rows say what is missing.
# Usage: bench/hopper.sh [folder] [tables by commas]     (build/bench, all)
# Environment: TRIGEN_BENCH_TUNE (a budget for each problem, as 3s; none: no tuning), TRIGEN_PROGRAM (build/trigen), TRIGEN_LAB (build/trigen-lab),
# TRIGEN_BENCH_LIMIT, TRIGEN_BENCH_TORCH_LIMIT (seconds: 110, 40), TRIGEN_BENCH_ROW (0.6), TRIGEN_BENCH_LIST (bench/hopper.txt),
# TRIGEN_BENCH_OPTIONS (more options of `trigen-lab tables`), PYTHON (python3).
set -uo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build/bench}
only=${2:-}
program=${TRIGEN_PROGRAM:-build/trigen}
lab=${TRIGEN_LAB:-build/trigen-lab}
list=${TRIGEN_BENCH_LIST:-bench/hopper.txt}
row=${TRIGEN_BENCH_ROW:-0.6}
results=$folder/$(basename "${list%.*}").jsonl
code=0
mkdir -p "$folder" || exit
if [ -n "${TRIGEN_BENCH_TUNE:-}" ]; then
  "$lab" tables "$list" ${only:+--only "$only"} --print-problems |
    "$program" tune --budget "$TRIGEN_BENCH_TUNE" --problems - >"$folder/tune.txt" || exit
  echo "bench: what was tuned: $folder/tune.txt" >&2
fi
started=$(date +%s)
# shellcheck disable=SC2086
"$lab" tables "$list" ${only:+--only "$only"} --out "$folder" --limit "${TRIGEN_BENCH_LIMIT:-110}s" --row-time "${row}s" \
  ${TRIGEN_BENCH_OPTIONS:-} || code=$?
# No GPU, or a list that cannot be read: nothing of this run is there.
if [ ! -e "$results" ] || [ "$(stat -c %Y "$results")" -lt "$started" ]; then exit $code; fi
export PYTHONPATH=python${PYTHONPATH:+:$PYTHONPATH} TRIGEN_LIBRARY=${TRIGEN_LIBRARY:-$PWD/build/libtrigen.so}
if "${PYTHON:-python3}" -c 'import torch' 2>/dev/null; then
  "${PYTHON:-python3}" bench/torch_tables.py --tables "$list" ${only:+--only "$only"} --out "$results" --row-time "$row" \
    --limit "${TRIGEN_BENCH_TORCH_LIMIT:-40}" || code=$?
else
  echo "bench: no PyTorch here, so the rows with over=torch stay without a figure" >&2
fi
"$lab" render "$results" --out "$folder" >"$folder/tables.txt" && cat "$folder/tables.txt"
exit $code
