"""Hardening of the binaries against faults in readers of strangers' files, read from the binaries themselves."""

import platform
import re
import subprocess

import pytest
from conftest import BUILD

FOLDERS = ("generator", "cache", "runtime", "tuner", "cli", "emulator")


def readelf(*words) -> str:
    return subprocess.run(["readelf", "-W", *words], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("name", ["trigen", "libtrigen.so", "libtrigen_emulator.so"])
def test_what_the_loader_binds_is_read_only_and_no_stack_runs(name):
    if not (BUILD / name).exists():
        pytest.skip(f"[SKIP] {BUILD / name} is not built")
    assert re.search(r"\(FLAGS_1\).*\bNOW\b", readelf("-d", BUILD / name))
    segments = readelf("-l", BUILD / name)
    assert "GNU_RELRO" in segments
    assert re.search(r"GNU_STACK(\s+0x\w+){5}\s+RW\s", segments)
    assert re.search(r"Type:\s+DYN", readelf("-h", BUILD / name))


def objects(folder):
    found = sorted((BUILD / folder).rglob("*.o"))
    if not found:
        pytest.skip(f"[SKIP] {BUILD / folder} is not built")
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_trigens_own_code_has_canaries_and_marked_targets(folder):
    made = objects(folder)
    assert "__stack_chk_fail" in readelf("-s", *made)
    if platform.machine() == "x86_64":
        assert readelf("-n", *made).count("x86 feature: IBT, SHSTK") == len(made)


def test_copies_of_known_sizes_are_checked():
    made = [one for folder in FOLDERS for one in objects(folder)]
    assert re.search(r"UND __(memcpy|memset|snprintf|vsnprintf|read|pread\w*)_chk", readelf("-s", *made))
