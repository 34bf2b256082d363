#!/usr/bin/env bash
# Builds the documentation's site into build/site and checks every link and asterisk; needs the built program (build/trigen), no network at run time.
# Usage: scripts/docs.sh [--install] [--serve]
#   --install   makes build/docs-venv with mkdocs, its theme and mkdocstrings (from PyPI), and uses it
#   TRIGEN_REPOSITORY=URL   where the sources are, for the link in the pages' head; without it there is none
#   --serve     serves the pages at http://127.0.0.1:8000 and rebuilds what changes, instead of building once
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build/docs-venv
if [[ ${1:-} == --install ]]; then
  shift
  [[ -x $venv/bin/python ]] || python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet 'mkdocs==1.6.1' 'mkdocs-material==9.8.1' 'mkdocstrings==1.0.*' 'mkdocstrings-python==2.0.*' 'ruff==0.17.*'
fi
if [[ ! -x $venv/bin/mkdocs ]]; then
  echo "[SKIP] documentation: no mkdocs in $venv; scripts/docs.sh --install makes it"
  exit 0
fi
python3 bench/results.py --check
export NO_MKDOCS_2_WARNING=1
if [[ ${1:-} == --serve ]]; then exec "$venv/bin/mkdocs" serve; fi
exec "$venv/bin/mkdocs" build --strict
