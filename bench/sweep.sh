#!/usr/bin/env bash
# Problems that nobody chose, untuned and tuned, beside every peer: the table of figures, the worst rows with what bounds them, and a drawing.
# The draw is written down in peers/sweep_problems.h. Sizes of the lists that choices were made on are left out.
# Usage: bench/sweep.sh [problems] [folder] [more options of `trigen bench`]     (200, build/sweep)
#   bench/sweep.sh 200 build/sweep --seed 7 --budget 2s --limit 10m
#   bench/sweep.sh 400 build/fitting --half fitting --print-problems >fit.txt       # what may be tuned and fitted on: never reported
# Environment: TRIGEN_PROGRAM (build/trigen)
set -euo pipefail
cd "$(dirname "$0")/.."
count=${1:-200}
folder=${2:-build/sweep}
shift $(($# < 2 ? $# : 2))
unseen=()
for list in bench/hopper.txt bench/peers.txt bench/model.txt bench/model_usual.txt bench/untimed.txt problems/core.txt problems/mixers.txt; do
  unseen+=(--unseen "$list")
done
exec "${TRIGEN_PROGRAM:-build/trigen}" bench --sweep "$count" --out "$folder" "${unseen[@]}" "$@"
