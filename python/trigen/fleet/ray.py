"""A fleet on Ray: a task for each GPU of the cluster, placed by the GPU's kind.

import ray, trigen.fleet.ray
ray.init(address="auto")
trigen.fleet.ray.tune("problems.txt", "s3://bucket/fleet")
trigen.fleet.merge("s3://bucket/fleet", "base.trigen")
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

import ray

from ..errors import BadRequest, TrigenError
from .place import Place
from .work import Problems, Url, work

_ACCELERATOR = "accelerator_type:"  # the resource that Ray gives nodes by the GPUs it finds
_DEATHS = 3


class Worked(NamedTuple):
    """The outcome of one task."""

    kind: str
    shard: str
    problem: Optional[str]  # why it failed after all retries; None: done


def kinds() -> Dict[str, int]:
    """GPUs of the cluster by their kind, as Ray names it: {"H200": 8, "V100": 4}. "" for GPUs whose kind Ray does not know."""
    found: Dict[str, int] = {}
    for node in ray.nodes():
        resources = node["Resources"] if node["Alive"] else {}
        gpus = int(resources.get("GPU", 0))
        kind = next((name[len(_ACCELERATOR) :] for name in sorted(resources) if name.startswith(_ACCELERATOR)), "")
        if gpus > 0:
            found[kind] = found.get(kind, 0) + gpus
    return found


def tune(
    problems: Problems,
    place: Url,
    *,
    gpus: Optional[Mapping[str, int]] = None,
    devices: Optional[Mapping[str, str]] = None,
    retries: int = _DEATHS,
    **options: Any,
) -> List[Worked]:
    """Tunes the problems on every kind of GPU: a task per GPU, each with its part of the list. A task whose worker or node dies, or that
    fails, is started again, up to `retries` times, and goes on with what is still a hole.

    gpus     kinds and how many of each to use; None: all that the cluster has (`kinds()`)
    devices  for each kind the device that `trigen tune` opens; "0", the GPU that Ray gave the task, where it has none
    options  further arguments of trigen.fleet.work
    Raises TrigenError when tasks failed for good, after all others are done; the place has what was tuned."""
    wanted = dict(kinds() if gpus is None else gpus)
    if not any(wanted.values()):
        raise BadRequest("this Ray cluster has no GPU; add nodes with GPUs, or name kinds in gpus={...}")
    if not isinstance(place, Place):
        place = Place(place)
    texts = _texts(problems)
    tasks, parts = [], []
    for kind, count in wanted.items():
        for index in range(count):
            placed: Dict[str, Any] = {"accelerator_type": kind} if kind else {}
            part = f"{index}/{count}"
            task = _work.options(
                num_gpus=1, max_retries=retries, retry_exceptions=[TrigenError], name=f"trigen {kind} {part}", **placed
            )
            tasks.append(task.remote(place.url, place.options, texts, part, (devices or {}).get(kind, "0"), options))
            parts.append((kind, part))
    done = []
    for (kind, part), task in zip(parts, tasks):
        try:
            ray.get(task)
            done.append(Worked(kind, part, None))
        except Exception as error:  # Ray wraps what a task raised, and has errors of its own for workers and nodes
            done.append(Worked(kind, part, str(getattr(error, "cause", None) or error)))
    failed = [one for one in done if one.problem]
    if failed:
        raise TrigenError(
            f"{len(failed)} of {len(done)} tasks failed, the first ({failed[0].kind} {failed[0].shard}) with: {failed[0].problem}; "
            f"what was tuned is in {place.url}, the same call goes on"
        )
    return done


@ray.remote
def _work(
    url: str, place_options: Dict[str, Any], problems: Sequence[str], shard: str, device: str, options: Dict[str, Any]
) -> None:
    if not work(Place(url, **place_options), problems, shard=shard, device=device, **options):
        raise TrigenError(f"part {shard} was interrupted")  # to be retried elsewhere


def _texts(problems: Problems) -> List[str]:
    """Lines of a file that the tasks' machines need not have."""
    if not isinstance(problems, (str, os.PathLike)):
        return list(problems)
    with open(problems) as file:
        return [line.strip() for line in file if line.strip() and not line.lstrip().startswith("#")]
