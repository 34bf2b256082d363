"""trigen.fleet on a folder, with the real program; its stores and Ray are tests/fleet's, which scripts/test_fleet.sh runs."""

import os
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

    def work(place, shard, cache, **options):
        return fleet.work(
            place,
            PROBLEMS,
            shard=shard,
            arch="sm_70",
            cache=str(tmp_path / cache),
            options=["--no-device", "--candidates", "1"],
            **options,
        )

    return work


def test_any_order_and_any_repetition_make_one_base(tuned, tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir(mode=0o700)
    assert tuned(one, "1/2", "a.db") and tuned(one, "0/2", "b.db")
    assert [len(kind["holes"]) for kind in fleet.status(one, PROBLEMS)["kinds"]] == [0]
    assert tuned(other, "0/1", "c.db")
    fleet.Place(one).push(other)  # a shard that says again what another one says
    assert "3 records" in fleet.merge(one, tmp_path / "one.trigen") and "3 records" in fleet.merge(
        other, tmp_path / "other.trigen"
    )
    assert (tmp_path / "one.trigen").read_bytes() == (tmp_path / "other.trigen").read_bytes()
    before = fleet.Place(one).names()
    assert tuned(one, "0/1", "d.db") and fleet.Place(one).names() == before and len(before) == 3


def test_what_the_program_refuses_is_raised(tuned, tmp_path):
    with pytest.raises(trigen.TrigenError, match="no part 2 of 2"):
        tuned(tmp_path / "fleet", "2/2", "a.db")
    with pytest.raises(trigen.TrigenError, match="name a cache file or a bundle"):
        fleet.merge(tmp_path / "nowhere", tmp_path / "base.trigen")


def test_signatures_go_with_their_shards(tuned, monkeypatch, tmp_path):
    """Where keys are asked for, signed shards fill holes and merge, from whatever place; unsigned ones and a stranger's are refused by name."""
    for name in ("own", "stranger"):
        subprocess.run(
            [trigen.program(), "cache", "keygen", "--key", tmp_path / f"{name}.key"], check=True, capture_output=True
        )
    own, stranger = str(tmp_path / "own.key"), str(tmp_path / "stranger.key")
    place, other = tmp_path / "place", tmp_path / "other"
    monkeypatch.setenv("TRIGEN_TRUSTED_KEYS", own + ".pub")
    assert tuned(place, "0/2", "a.db", sign=own) and tuned(place, "1/2", "b.db", sign=own)
    (shard, *_), signatures = sorted(fleet.Place(place).names()), sorted(path.name for path in place.glob("*.minisig"))
    assert [name + ".minisig" for name in sorted(fleet.Place(place).names())] == signatures
    assert [len(kind["holes"]) for kind in fleet.status(place, PROBLEMS)["kinds"]] == [0]
    assert len(fleet.Place(place).pull(other)) == 2 and fleet.Place(place).pull(other) == []
    assert "3 records" in fleet.merge(other, tmp_path / "base.trigen", sign=own)
    said = subprocess.run(
        [trigen.program(), "cache", "verify", "--keys", own + ".pub", tmp_path / "base.trigen"],
        capture_output=True,
        text=True,
    )
    assert said.returncode == 0 and "base.trigen: signed with key" in said.stdout

    (other / (shard + ".minisig")).unlink()
    with pytest.raises(trigen.TrigenError, match=f"{shard}.*has no signature that can be read"):
        fleet.merge(other, tmp_path / "none.trigen")
    assert fleet.status(other, PROBLEMS)["kinds"][0]["holes"], "what nobody signed fills no hole"
    assert fleet.Place(place).pull(other) == [] and "3 records" in fleet.merge(other, tmp_path / "again.trigen"), (
        "a signature comes later, too"
    )
    subprocess.run(
        [trigen.program(), "cache", "sign", "--key", stranger, other / shard], check=True, capture_output=True
    )
    with pytest.raises(trigen.TrigenError, match=f"{shard}.*is signed with key"):
        fleet.merge(other, tmp_path / "none.trigen")
    assert not (tmp_path / "none.trigen").exists()

    third = tmp_path / "third"
    fleet.Place(third).push(place)
    assert {path.name for path in third.iterdir()} == {path.name for path in place.iterdir()}


def test_files_of_a_place_have_an_end(monkeypatch, tmp_path):
    monkeypatch.setattr(fleet.place, "_MOST_BYTES", 1 << 20)
    place, folder = tmp_path / "place", tmp_path / "folder"
    place.mkdir()
    (place / ("0" * 64 + ".trigen")).write_bytes(bytes(2 << 20))
    os.mkfifo(place / ("1" * 64 + ".trigen"))
    with pytest.warns(trigen.TrigenWarning, match="more than 1 GiB"):
        assert fleet.Place(place).pull(folder) == []
    assert list(folder.iterdir()) == []
