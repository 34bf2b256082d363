"""trigen.fleet.ray on a Ray cluster of this machine: three nodes with two kinds of GPU, the emulated device for each. A worker is killed."""

import os
import signal
import subprocess
import threading
import time

import pytest

ray = pytest.importorskip("ray", reason="[SKIP] ray is not installed")
import trigen
from ray.cluster_utils import Cluster
from trigen import fleet

DEVICES = {"V100": "emulated:sm_70", "A100": "emulated:sm_80"}


@pytest.fixture()
def cluster():
    os.environ["PYTHONPATH"] = os.path.dirname(os.path.dirname(trigen.__file__))  # the tasks' workers import it too
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0")
    made = Cluster(initialize_head=True, head_node_args=dict(num_cpus=1, num_gpus=0, include_dashboard=False))
    for kind in ("V100", "V100", "A100"):
        made.add_node(num_cpus=1, num_gpus=1, resources={f"accelerator_type:{kind}": 1})
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


def worker_of(folder):
    """(process of a Ray worker, its tune) once there is one."""
    for _ in range(600):
        found = subprocess.run(
            ["pgrep", "-f", f"trigen tune .*--fleet {folder}.*emulated:sm_70"], capture_output=True, text=True
        ).stdout.split()
        if found:
            status = open(f"/proc/{found[0]}/stat").read()
            return int(status.rsplit(")", 1)[1].split()[1]), int(found[0])
        time.sleep(0.05)
    raise AssertionError("no worker began")


def test_a_task_for_each_gpu_and_a_worker_that_dies(cluster, reference, options, tmp_path):
    from trigen.fleet import ray as on_ray

    assert on_ray.kinds() == {"V100": 2, "A100": 1}
    place = tmp_path / "fleet"
    place.mkdir(mode=0o700)
    killed = []

    def kill():
        worker, tune = worker_of(place)
        os.kill(worker, signal.SIGKILL)
        killed.append((worker, tune))

    killer = threading.Thread(target=kill)
    killer.start()
    os.environ["XDG_CACHE_HOME"] = str(tmp_path)
    done = on_ray.tune(reference / "problems.txt", place, devices=DEVICES, **options)
    killer.join()
    assert len(killed) == 1 and not os.path.exists(f"/proc/{killed[0][0]}"), "a worker was killed"
    assert sorted((one.kind, one.shard, one.problem) for one in done) == [
        ("A100", "0/1", None),
        ("V100", "0/2", None),
        ("V100", "1/2", None),
    ]
    assert "12 records" in fleet.merge(place, tmp_path / "base.trigen")
    assert (tmp_path / "base.trigen").read_bytes() == (reference / "base.trigen").read_bytes()
    with pytest.raises(trigen.TrigenError, match="1 of 1 tasks failed.*sm_12345"):
        on_ray.tune(
            ["forward,dtype=f16,B=1,T=8,D=8"], place, gpus={"A100": 1}, devices={"A100": "emulated:sm_12345"}, retries=1
        )
