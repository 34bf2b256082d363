#!/usr/bin/env bash
# Runs the tests of the Python package, on any machine; those that need what is not here say [SKIP] and why. Format and lint
# (ruff.toml) first, where ruff is; files of tests side by side on all cores, where pytest-xdist is.
# Usage: scripts/test_python.sh [--install] [pytest arguments]
#   --install   makes build/python-venv with pytest, pytest-xdist, ruff, NumPy, PyTorch, JAX, optax, mypy and what the wheel's test needs,
#               and uses it
#   PYTHON=...  the interpreter (default: build/python-venv when it is there, else python3); with --install, the one to make that from
#   TRIGEN_TORCH=torch==2.4.0  the PyTorch that --install installs (default: torch)
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build/python-venv
if [[ ${1:-} == --install ]]; then
  shift
  [[ -x $venv/bin/python ]] || "${PYTHON:-python3}" -m venv "$venv"
  PYTHON=$venv/bin/python
  "$venv/bin/pip" install --quiet --upgrade pytest pytest-xdist ruff==0.14.0 numpy matplotlib setuptools wheel mypy jax optax "${TRIGEN_TORCH:-torch}"
fi
python=${PYTHON:-}
[[ -n $python ]] || { [[ -x $venv/bin/python ]] && python=$venv/bin/python || python=python3; }
if ! "$python" -c 'import pytest' 2>/dev/null; then
  echo "[SKIP] Python tests: $python has no pytest; scripts/test_python.sh --install makes an environment"
  exit 0
fi
if "$python" -c 'import ruff' 2>/dev/null; then
  "$python" -m ruff format --check --quiet .
  "$python" -m ruff check --quiet .
fi
export TRIGEN_TRUSTED_FOLDERS=${TRIGEN_TRUSTED_FOLDERS:-$PWD}  # a checkout may lie where everybody may write
together=()
if [[ $# == 0 ]] && "$python" -c 'import xdist' 2>/dev/null; then together=(-n "$(nproc)" --dist loadfile); fi
"$python" -m pytest -q -rs --durations=20 ${together[@]+"${together[@]}"} tests/python "$@"
# The first run's target is sm_80. Without TF32, bf16 and cp.async; with TMA and wgmma: one file has most of these tests, so the two
# targets run beside each other, and each is one process. What test_forms.py has beside kernels knows no target, and what a first call
# does is the same on each (TRIGEN_TEST_ALL=1 runs it).
if [[ $# == 0 && -z ${TRIGEN_TEST_TARGET:-} ]]; then
  [[ ${TRIGEN_TEST_ALL:-0} == 0 ]] || first_call=tests/python/test_first_call.py
  operators() {
    TRIGEN_TEST_TARGET=$1 "$python" -m pytest -q -rs --durations=10 tests/python/test_cuda_path.py tests/python/test_forms.py::test_kernels_against_double \
      ${first_call+"$first_call"}
  }
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  operators sm_70 >"$log" 2>&1 &
  failed=0
  echo "the operators on an emulated sm_90a:"
  operators sm_90a || failed=1
  echo "the operators on an emulated sm_70:"
  wait $! || failed=1
  cat "$log"
  exit $failed
fi
