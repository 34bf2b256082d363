#!/usr/bin/env bash
# Runs the tests of the Python package, on any machine; those that need what is not here say [SKIP] and why.
# Usage: scripts/test_python.sh [--install] [pytest arguments]
#   --install   makes build/python-venv with pytest, NumPy, PyTorch, JAX, mypy and what the wheel's test needs, and uses it
#   PYTHON=...  the interpreter (default: build/python-venv when it is there, else python3); with --install, the one to make that from
#   TRIGEN_TORCH=torch==2.4.0  the PyTorch that --install installs (default: torch)
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build/python-venv
if [[ ${1:-} == --install ]]; then
  shift
  [[ -x $venv/bin/python ]] || "${PYTHON:-python3}" -m venv "$venv"
  PYTHON=$venv/bin/python
  "$venv/bin/pip" install --quiet --upgrade pytest numpy matplotlib setuptools wheel mypy jax "${TRIGEN_TORCH:-torch}"
fi
python=${PYTHON:-}
[[ -n $python ]] || { [[ -x $venv/bin/python ]] && python=$venv/bin/python || python=python3; }
if ! "$python" -c 'import pytest' 2>/dev/null; then
  echo "[SKIP] Python tests: $python has no pytest; scripts/test_python.sh --install makes an environment"
  exit 0
fi
"$python" -m pytest -q -rs tests/python "$@"
# The first run's target is sm_80. Without TF32, bf16 and cp.async; with TMA and wgmma:
if [[ $# == 0 && -z ${TRIGEN_TEST_TARGET:-} ]]; then
  for target in sm_70 sm_90a; do
    echo "the operators on an emulated $target:"
    TRIGEN_TEST_TARGET=$target "$python" -m pytest -q -rs tests/python/test_cuda_path.py tests/python/test_first_call.py
  done
fi
