"""A list, two kinds of device and the base that a fleet must make of them, whatever dies on the way. TRIGEN_FLEET_REFERENCE is a folder
with problems.txt and base.trigen, made by scripts/test_fleet.sh."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))


@pytest.fixture(scope="session")
def reference():
    folder = os.environ.get("TRIGEN_FLEET_REFERENCE")
    if not folder:
        pytest.skip("[SKIP] no TRIGEN_FLEET_REFERENCE; scripts/test_fleet.sh makes one and runs these")
    return Path(folder)


@pytest.fixture()
def options():
    return dict(options=["--candidates", "1"], publish="1ms")
