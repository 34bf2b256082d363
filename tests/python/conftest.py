"""Tests of the Python package. Run with `pytest tests/python` where torch is installed; the package is taken from python/ of this
tree unless it is installed."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
