"""What the linker and the compiler were asked for against faults in readers of strangers' files, read from the binaries themselves."""

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


@pytest.mark.parametrize("folder", FOLDERS)
def test_trigens_own_code_has_canaries_and_marked_targets(folder):
    archives = sorted((BUILD / folder).glob("libtrigen_*.a"))
    if not archives:
        pytest.skip(f"[SKIP] {BUILD / folder} is not built")
    (archive,) = archives
    assert "__stack_chk_fail" in readelf("-s", archive)
    if platform.machine() == "x86_64":
        marked = readelf("-n", archive).count("x86 feature: IBT, SHSTK")
        assert marked == readelf("-h", archive).count("ELF Header:") > 0


def test_copies_of_known_sizes_are_checked():
    archives = [archive for folder in FOLDERS for archive in (BUILD / folder).glob("libtrigen_*.a")]
    if not archives:
        pytest.skip(f"[SKIP] {BUILD} is not built")
    assert re.search(r"UND __(memcpy|memset|snprintf|vsnprintf|read|pread\w*)_chk", "".join(readelf("-s", archive) for archive in archives))
