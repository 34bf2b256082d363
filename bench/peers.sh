#!/usr/bin/env bash
# Tunes the shapes of a problem list on this machine's GPU, then times trigen and cuBLAS side by side in one run.
# Needs a GPU and cuBLAS (a toolkit or the nvidia-cublas wheel); `trigen doctor` says what is there.
# Usage: bench/peers.sh [list] [folder]   (bench/peers.txt, build/peers: peers.json, peers.txt, cache.db)
set -euo pipefail
cd "$(dirname "$0")/.."
list=${1:-bench/peers.txt}
folder=${2:-build/peers}
budget=${TRIGEN_BENCH_BUDGET:-30s}
mkdir -p "$folder"
export TRIGEN_CACHE=$folder/cache.db
build/trigen tune --budget "$budget" --problems "$list"
build/trigen bench --against cublas --json --problems "$list" >"$folder/peers.json"
build/trigen bench --against cublas --problems "$list" | tee "$folder/peers.txt"
