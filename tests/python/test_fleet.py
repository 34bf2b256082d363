"""trigen.fleet on a folder, with the real program; its stores and Ray are tests/fleet's, which scripts/test_fleet.sh runs."""

import subprocess

import pytest

import trigen
from trigen import fleet

PROBLEMS = [f"forward,dtype=f16,B=1,T={T},D=16" for T in (16, 24, 40)]


@pytest.fixture()
def tuned(monkeypatch, tmp_path):
    try:
        program = trigen.program()
    except trigen.LibraryMissing as error:
        pytest.skip(f"[SKIP] {error}")
    found = subprocess.run([program, "doctor"], capture_output=True, text=True)
    if "libnvrtc" not in found.stdout + found.stderr:
        pytest.skip("[SKIP] no NVRTC here: `trigen doctor` finds none")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")

    def work(place, shard, cache):
        return fleet.work(place, PROBLEMS, shard=shard, arch="sm_70", cache=str(tmp_path / cache), options=["--no-device", "--top", "1"])

    return work


def test_any_order_and_any_repetition_make_one_base(tuned, tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir(mode=0o700)
    assert tuned(one, "1/2", "a.db") and tuned(one, "0/2", "b.db")
    assert [len(kind["holes"]) for kind in fleet.status(one, PROBLEMS)["kinds"]] == [0]
    assert tuned(other, "0/1", "c.db")
    fleet.Place(one).push(other)  # a shard that says again what another one says
    assert "3 records" in fleet.merge(one, tmp_path / "one.trigen") and "3 records" in fleet.merge(other, tmp_path / "other.trigen")
    assert (tmp_path / "one.trigen").read_bytes() == (tmp_path / "other.trigen").read_bytes()
    before = fleet.Place(one).names()
    assert tuned(one, "0/1", "d.db") and fleet.Place(one).names() == before and len(before) == 3


def test_what_the_program_refuses_is_raised(tuned, tmp_path):
    with pytest.raises(trigen.TrigenError, match="no part 2 of 2"):
        tuned(tmp_path / "fleet", "2/2", "a.db")
    with pytest.raises(trigen.TrigenError, match="name a cache file or a bundle"):
        fleet.merge(tmp_path / "nowhere", tmp_path / "base.trigen")
