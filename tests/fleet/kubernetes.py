"""The containers of examples/fleet/kubernetes/, run as a kubelet would: each index with its variable, an index that is killed once more.
A cluster is not needed for what they do; their schema is checked by scripts/check_manifests.sh.

Usage: tests/fleet/kubernetes.py FOLDER [option of trigen tune]...      FOLDER holds problems.txt and receives shards/ and base.trigen
"""

import os
import pathlib
import signal
import subprocess
import sys
import time

import yaml

MANIFESTS = pathlib.Path(__file__).resolve().parents[2] / "examples/fleet/kubernetes"


def job(name):
    spec = yaml.safe_load((MANIFESTS / name).read_text())["spec"]
    return spec, spec["template"]["spec"]["containers"][0]


def start(container, folder, index, more=()):
    """The container's command with the volume at `folder`."""
    command = [
        word.replace("/fleet", str(folder)).replace("/tmp/cache.db", str(folder / f"pod{index}.db"))
        for word in container["command"]
    ]
    return subprocess.Popen(
        [*command, *more], env={**os.environ, "JOB_COMPLETION_INDEX": str(index)}, stderr=subprocess.PIPE, text=True
    )


def main():
    folder, options = pathlib.Path(sys.argv[1]), sys.argv[2:]
    spec, container = job("tune.yaml")
    assert spec["completionMode"] == "Indexed" and f"auto/{spec['completions']}" in container["command"], spec
    assert spec["backoffLimitPerIndex"] > 0
    first = start(container, folder, 0, options)
    while not (folder / "pod0.db").exists():
        assert first.poll() is None, first.stderr.read()
        time.sleep(0.02)
    first.kill()
    assert first.wait() == -signal.SIGKILL
    for index in range(spec["completions"]):
        pod = start(container, folder, index, options)
        said = pod.communicate()[1]
        assert pod.returncode == 0, said
    merge = start(job("merge.yaml")[1], folder, 0)
    said = merge.communicate()[1]
    assert merge.returncode == 0, said


main()
