"""Stores where shards meet, each a real server on this machine: S3 (moto's), HTTP, a folder."""

import functools
import http.server
import os
import subprocess
import sys
import threading
import time

import pytest

fsspec = pytest.importorskip("fsspec", reason="[SKIP] fsspec is not installed")
import trigen
from trigen import fleet

DEVICES = ("emulated:sm_70", "emulated:sm_80")


@pytest.fixture()
def s3(tmp_path):
    """moto's server in a process of its own, as a place."""
    pytest.importorskip("s3fs", reason="[SKIP] s3fs is not installed")
    pytest.importorskip("moto", reason="[SKIP] moto is not installed")
    with open(tmp_path / "moto.log", "w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        for _ in range(200):
            said = (tmp_path / "moto.log").read_text()
            if "Running on http://" in said:
                break
            assert server.poll() is None, said
            time.sleep(0.1)
        url = said.split("Running on ")[1].split()[0]
        options = dict(key="k", secret="s", endpoint_url=url, client_kwargs={"region_name": "eu-west-1"})
        fsspec.filesystem("s3", **options).mkdir("bucket")
        yield "s3://bucket/fleet", options
    finally:
        server.kill()
        server.wait()


class PutHandler(http.server.SimpleHTTPRequestHandler):
    def do_PUT(self):
        path = self.translate_path(self.path)
        with open(path, "wb") as file:
            if self.headers.get("Transfer-Encoding") == "chunked":
                while (size := int(self.rfile.readline(), 16)) > 0:
                    file.write(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
            else:
                file.write(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(201)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture()
def web(tmp_path):
    pytest.importorskip("aiohttp", reason="[SKIP] aiohttp is not installed")
    (tmp_path / "www" / "fleet").mkdir(parents=True)
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(PutHandler, directory=tmp_path / "www")
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/fleet/", {}
    server.shutdown()


def test_a_fleet_meets_in_s3(s3, reference, options, tmp_path):
    """Four workers, one of them killed and begun again, one begun twice: the same base."""
    url, store = s3
    place = fleet.Place(url, **store)
    assert place.names() == set()
    with pytest.raises(trigen.TrigenError, match="no shard|no bundle"):
        fleet.merge(place, tmp_path / "early.trigen")
    script = (
        "import sys; from trigen import fleet; fleet.work(fleet.Place(sys.argv[1], **eval(sys.argv[2])), sys.argv[3], shard='0/2', device=sys.argv[4], "
        "cache=sys.argv[5], publish='1ms', poll=0.1, options=['--candidates', '1'])"
    )
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(trigen.__file__))}
    killed = subprocess.Popen(
        [
            sys.executable,
            "-c",
            script,
            url,
            repr(store),
            str(reference / "problems.txt"),
            DEVICES[0],
            str(tmp_path / "cache0.db"),
        ],
        env=environment,
    )
    while not place.names():
        assert killed.poll() is None, "it ended before it could be killed"
        time.sleep(0.05)
    killed.kill()
    killed.wait()
    before = fleet.status(place, reference / "problems.txt")["kinds"]
    assert [kind["arch"] for kind in before] == ["sm_70"] and 0 < len(before[0]["holes"]) < 12, before
    for device in DEVICES:
        for index in (0, 1):
            assert fleet.work(
                place,
                reference / "problems.txt",
                shard=f"{index}/2",
                device=device,
                cache=str(tmp_path / f"{device[-2:]}{index}.db"),
                **options,
            )
    there = place.names()
    assert fleet.work(place, reference / "problems.txt", shard="0/2", device=DEVICES[0], **options)
    assert place.names() == there, "what is no hole is not tuned again"
    assert not any(kind["holes"] for kind in fleet.status(place, reference / "problems.txt")["kinds"])
    assert "12 records" in fleet.merge(place, tmp_path / "base.trigen")
    assert (tmp_path / "base.trigen").read_bytes() == (reference / "base.trigen").read_bytes()


@pytest.mark.parametrize("kind", ["s3", "web", "folder"])
def test_shards_are_checked_and_never_changed(kind, request, reference, tmp_path):
    url, store = request.getfixturevalue(kind) if kind != "folder" else (str(tmp_path / "place"), {})
    place = fleet.Place(url, **store)
    mine = tmp_path / "mine"
    mine.mkdir()
    shard = sorted((reference / "shards").iterdir())[0]
    (mine / shard.name).write_bytes(shard.read_bytes())
    (mine / "notes.txt").write_text("no shard")
    (mine / f"{shard.name}.minisig").write_text("its signature")
    assert place.push(mine) == [shard.name]
    assert place.push(mine) == [], "twice is once"
    assert place.pull(tmp_path / "theirs") == [shard.name] and place.pull(tmp_path / "theirs") == []
    assert (tmp_path / "theirs" / shard.name).read_bytes() == shard.read_bytes()
    assert (tmp_path / "theirs" / f"{shard.name}.minisig").read_text() == "its signature"
    wrong = "0" * 64 + ".trigen"
    (mine / wrong).write_bytes(b"half of a shard")
    place.push(mine)
    with pytest.warns(trigen.TrigenWarning, match=wrong):
        assert place.pull(tmp_path / "theirs") == []


def test_a_web_server_that_only_shows(web, reference, tmp_path):
    """Plain HTTP serves a base or shards to everybody; what it does not take it says."""
    url, _ = web
    folder = tmp_path / "www" / "fleet"
    shard = sorted((reference / "shards").iterdir())[0]
    (folder / shard.name).write_bytes(shard.read_bytes())
    place = fleet.Place(url)
    assert place.names() == {shard.name}
    do_put, PutHandler.do_PUT = PutHandler.do_PUT, lambda self: self.send_error(405)
    try:
        with pytest.raises(trigen.TrigenError, match="does not take"):
            place.push(reference / "shards")
    finally:
        PutHandler.do_PUT = do_put


def test_places_that_are_none():
    with pytest.raises(trigen.BadRequest, match="nosuch"):
        fleet.Place("nosuch://bucket/fleet")
