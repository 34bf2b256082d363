#!/usr/bin/env bash
# Attacks the built program and library with damaged and planted files, kills, failing system calls, planted kernels,
# forged signatures and odd calls, and prints tries, results and a verdict; fails where a promise is broken (SECURITY.md).
# Usage: scripts/attack.sh [--minutes N] [--only NAME,...] [--seed N|random] [--jobs N] [--list] [--keep]
#   --minutes N   how long two idle cores take, about (1); the counts of tries grow with it
#   TRIGEN_BUILD=FOLDER   what is attacked (build)
# Needs a C compiler, and root for some attacks, which say that they were skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 -B tests/attack "$@"
