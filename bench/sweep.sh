#!/usr/bin/env bash
# Problems that nobody chose, untuned and tuned, beside every peer: the table of figures, and the worst rows with what bounds them.
# The draw is written down in lab/sweep_problems.h. Left out are the sizes that choices were made on: lists, the cost model's samples, and
# the rows of earlier runs, which kernels were made for afterwards.
# Usage: bench/sweep.sh [problems] [folder] [more options of `trigen-lab sweep`]     (200, build/sweep)
#   bench/sweep.sh 200 build/sweep --seed 7 --budget 2s --limit 10m
#   bench/sweep.sh 400 build/fitting --half fitting --print-problems >fit.txt       # what may be tuned and fitted on: never reported
# Environment: TRIGEN_LAB (build/trigen-lab)
set -euo pipefail
cd "$(dirname "$0")/.."
count=${1:-200}
folder=${2:-build/sweep}
shift $(($# < 2 ? $# : 2))
unseen=()
for list in bench/{hopper,lost,peers,model,model_usual}.txt problems/{core,mixers}.txt tests/data/samples/h200_*.zst bench/results/*-20*.jsonl; do
  unseen+=(--unseen "$list")
done
exec "${TRIGEN_LAB:-build/trigen-lab}" sweep "$count" --out "$folder" "${unseen[@]}" "$@"
