"""Inputs of scan for tests."""

import torch


def make(B=2, H=1, n=24, D=16, layout="btd", dtype=torch.float32, seed=0, decays=(0.9, 1.0)):
    generator = torch.Generator().manual_seed(seed)
    shape = (B, n, H * D) if layout == "btd" else (B, H * D, n)
    x, dy = (torch.randn(shape, generator=generator).to(dtype) for _ in range(2))
    vectors = [torch.randn(H, n, generator=generator) for _ in range(4)]
    vectors[2] = decays[0] + (decays[1] - decays[0]) * torch.rand(H, n, generator=generator)
    return x, dy, vectors, torch.randn(H, n, generator=generator)
