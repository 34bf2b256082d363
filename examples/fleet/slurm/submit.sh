#!/usr/bin/env bash
# Tunes a list on GPUs of several kinds: a job array for each kind, and a job that merges when all have ended. Prints the merging job's number.
#   PROBLEMS=problems.txt FLEET=$PWD/fleet BASE=$PWD/base.trigen examples/fleet/slurm/submit.sh v100:4 h200:2
# v100 and h200 are types of the cluster's gres (`sinfo -o %G`); the number is how many GPUs of the kind work at a time. Submitted again, only
# holes are filled. SBATCH_OPTIONS="--partition night" goes to every job.
set -euo pipefail
(($# > 0)) || { echo "usage: submit.sh KIND:GPUS..." >&2; exit 2; }
: "${PROBLEMS:?a file with one problem per line}" "${FLEET:?a folder that all nodes see}" "${BASE:?the bundle to make, NAME.trigen}"
export PROBLEMS FLEET BASE
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$FLEET"
arrays=
for kind in "$@"; do
  # shellcheck disable=SC2086  # options are words
  arrays+=:$(sbatch --parsable ${SBATCH_OPTIONS:-} --gres="gpu:${kind%:*}:1" --array="0-$((${kind#*:} - 1))" "$here/tune.sbatch")
done
# afterany: what a failed task left undone is a hole, and the others' work is merged all the same.
# shellcheck disable=SC2086
sbatch --parsable ${SBATCH_OPTIONS:-} --dependency="afterany$arrays" "$here/merge.sbatch"
