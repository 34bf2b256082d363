"""DistributedDataParallel over two processes (gloo, CPU): gradients are those of one process on the whole batch."""

import os
import tempfile

import pytest

torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")

import torch.distributed as dist
import trigen.torch as tt

pytestmark = pytest.mark.skipif(
    not dist.is_available() or not dist.is_gloo_available(), reason="[SKIP] this torch has no gloo"
)


def leave():
    """Ends a worker once both have everything. Without static destructors: gloo's, run beside its threads, sometimes abort the process
    ("terminate called without an active exception", torch 2.13)."""
    dist.barrier()
    os._exit(0)


def make():
    torch.manual_seed(3)
    return torch.nn.Sequential(
        tt.TriangularConv1d(8, 3), torch.nn.GELU(), tt.TriangularConv1d(8, heads=2)
    ), torch.randn(4, 8, 6)


def worker(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    model, x = make()
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    for _ in range(2):
        parallel.zero_grad()
        parallel(x[2 * rank : 2 * rank + 2]).square().mean().backward()
    torch.save([parameter.grad for parameter in model.parameters()], f"{folder}/{rank}.pt")
    leave()


def test_gradients_are_the_whole_batchs():
    model, x = make()
    model(x).square().mean().backward()
    want = [parameter.grad for parameter in model.parameters()]
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        torch.multiprocessing.spawn(worker, (folder,), nprocs=2)
        for rank in range(2):
            for got, expected in zip(torch.load(f"{folder}/{rank}.pt"), want):
                torch.testing.assert_close(got, expected)


def sharded_worker(rank, folder):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    model, x = make()
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model(x[2 * rank : 2 * rank + 2]).square().mean().backward()
    gradients = [parameter.grad.full_tensor() for parameter in model.parameters()]
    if rank == 0:
        torch.save(gradients, f"{folder}/sharded.pt")
    leave()


def test_fully_sharded_gradients_are_the_whole_batchs():
    try:
        from torch.distributed.fsdp import fully_shard  # noqa: F401
    except ImportError:
        pytest.skip("[SKIP] this torch has no fully_shard")
    model, x = make()
    model(x).square().mean().backward()
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        torch.multiprocessing.spawn(sharded_worker, (folder,), nprocs=2)
        for got, parameter in zip(torch.load(f"{folder}/sharded.pt"), model.parameters()):
            torch.testing.assert_close(got, parameter.grad)
