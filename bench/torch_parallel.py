"""Training of a masked mixer language model on several GPUs of one host: DistributedDataParallel and fully_shard (FSDP2), plain and
converted, beside one GPU. Prints one JSON object a line.

    python bench/torch_parallel.py --gpus 4 --out parallel.jsonl
    python bench/torch_parallel.py --device cpu --gpus 2 --shape 2,16,8 --layers 2 --steps 2     # does the script work? no figures

Every arm starts from the same weights and sees the same tokens. `tokens_per_s`: of all GPUs together, B sequences on each; median of the steps.
`parts_from_one_gpu`: the largest relative difference of a step's loss (the mean over the ranks) from the same model on one GPU with all
sequences, arm for arm. A step is forward under autocast, backward, AdamW.
"""

import argparse
import os
import statistics
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import trigen.torch as tt
from timing import Report, training_steps
from torch_model import load_example
from torch_step import PRECISIONS


def wrapped(model, way, device, count):
    """`model` as the ranks train it: way is "alone", "ddp" or "fsdp"."""
    if way == "ddp":
        ids = [device.index] if device.type == "cuda" else None
        return torch.nn.parallel.DistributedDataParallel(model, device_ids=ids)
    if way == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(device.type, (count,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


def train(options, arm, way, tokens, device, count):
    """(loss of each step on this rank's tokens, seconds of each step after the first `warm`)"""
    autocast, _, matmul = PRECISIONS[options.precision]
    torch.set_float32_matmul_precision(matmul)
    T, D = options.shape[1:]
    torch.manual_seed(0)
    model = load_example().MaskedMixer(options.vocabulary, T, D, options.layers).to(device)
    if arm == "trigen":
        tt.convert(model, tokens=T, select=lambda name, _: name.endswith("mixer"))
    if options.compile:
        torch._dynamo.reset()
        for block in model.blocks:
            block.compile(dynamic=False)
    model = wrapped(model, way, device, count)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    losses, seconds = training_steps(model, optimiser, tokens, autocast, device.type, options.warm, options.steps)
    return torch.stack(losses), seconds


def worker(rank, options, rendezvous):
    device = torch.device("cuda", rank) if options.device == "cuda" else torch.device("cpu")
    if options.device == "cuda":
        torch.cuda.set_device(device)
    backend = "nccl" if options.device == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{rendezvous}", rank=rank, world_size=options.gpus)
    report = Report(options.out if rank == 0 else None, options.device)
    B, T, D = options.shape
    every = torch.randint(options.vocabulary, (options.gpus * B, T + 1), generator=torch.Generator().manual_seed(1)).to(
        device
    )
    mine = every[rank * B : (rank + 1) * B]
    for arm in ("plain", "trigen"):
        whole = train(options, arm, "alone", every, device, 1)[0] if rank == 0 else None
        if rank == 0:
            _, alone = train(options, arm, "alone", mine, device, 1)
        dist.barrier()
        for way in ("alone", "ddp", "fsdp"):
            if way != "alone":
                losses, seconds = train(options, arm, way, mine, device, options.gpus)
                dist.all_reduce(losses)
                losses /= options.gpus
            if rank == 0:
                gpus, step = (
                    (1, statistics.median(alone)) if way == "alone" else (options.gpus, statistics.median(seconds))
                )
                line = dict(
                    part="parallel", arm=arm, way=way, gpus=gpus, compiled=options.compile, precision=options.precision
                )
                line.update(shape=f"B={B} a GPU T={T} D={D} layers={options.layers} vocabulary={options.vocabulary}")
                line.update(step_ms=round(1e3 * step, 3), tokens_per_s=round(gpus * B * T / step))
                if way != "alone":
                    line.update(parts_from_one_gpu=float(f"{((losses - whole).abs() / whole.abs()).max():.2g}"))
                    line.update(first_loss=round(float(losses[0]), 5), last_loss=round(float(losses[-1]), 5))
                report.add(**line)
    dist.barrier()
    os._exit(0)  # without static destructors: gloo's sometimes abort a process whose threads still run


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=torch.cuda.device_count(), help="ranks, one a GPU (all)")
    parser.add_argument("--shape", default="16,512,1024", help="B,T,D: sequences on each GPU, tokens, features")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--precision", choices=PRECISIONS, default="bfloat16")
    parser.add_argument("--compile", action="store_true", help="torch.compile every block")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warm", type=int, default=4)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--out", default=None, help="the lines, in a file too")
    options = parser.parse_args(arguments)
    options.shape = tuple(map(int, options.shape.split(",")))
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(worker, (options, Path(folder) / "rendezvous"), nprocs=options.gpus)


if __name__ == "__main__":
    main()
