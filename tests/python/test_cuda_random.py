"""Random shapes, strides, dtypes, fills and epilogues through the CUDA implementation on the emulated device, with the shape-generic kernels.
NaN lies in the weight's other triangle and in the memory around strided inputs. TRIGEN_RANDOM_CASES=n runs more of them."""

import os
import random

import pytest

torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")

from test_cuda_path import device  # noqa: F401  (a fixture)
from trigen.torch import cuda, plain

TOLERANCE = {torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}


class Case:
    def __init__(self, seed):
        choose = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.choose = choose
        self.B, self.H, self.n = (
            choose.choice([1, 2, 3]),
            choose.choice([1, 1, 2, 3]),
            choose.choice([1, 2, 7, 16, 31, 33, 40]),
        )
        self.D, self.K, self.T = (
            choose.choice([1, 3, 8, 16, 20, 33]),
            choose.choice([1, 1, 2, 3, 5]),
            self.n + choose.choice([0, 0, 0, 1, 8]),
        )
        self.layout, self.dtype = choose.choice(["btd", "bdt"]), choose.choice(list(TOLERANCE))
        self.wdtype = torch.float32 if choose.random() < 0.3 else self.dtype
        self.fill, self.diag, self.pad = (
            choose.choice(["lower", "lower", "upper"]),
            choose.choice([0, 0, -1, 2]),
            choose.randrange(self.K),
        )
        self.form, self.width = choose.choice(["dense", "dense", "toeplitz", "band"]), choose.randint(1, self.n)
        if self.form != "dense":
            self.K, self.fill, self.diag, self.pad = 1, "lower", 0, 0
        self.epilogue = choose.random() < 0.5
        self.activation = choose.choice(["none", "gelu", "silu"]) if self.epilogue else "none"
        self.shape = (self.B, self.n, self.H * self.D) if self.layout == "btd" else (self.B, self.H * self.D, self.n)

    def activation_tensor(self, put):
        """The values, and a view of them in device memory with random strides."""
        values = torch.randn(self.shape, generator=self.generator).to(self.dtype)
        way = self.choose.randrange(4)
        if way == 0:
            return values, put(values)
        if way == 1:
            extra = self.choose.choice([1, 8, 16])
            wide = torch.full((*self.shape[:2], self.shape[2] + extra), float("nan"), dtype=self.dtype)
            part = slice(extra, None) if self.choose.random() < 0.5 else slice(0, self.shape[2])
            wide[..., part] = values
            return values, put(wide)[..., part]
        axes = (0, 1) if way == 2 else (1, 2)
        return values, put(values.transpose(*axes).contiguous()).transpose(*axes)

    def weight(self):
        """(weight, the same with NaN where nothing is read, bias, that place as a mask)"""
        head = (self.H,) if self.H > 1 else ()
        own = {"dense": (self.T, self.T, self.K), "toeplitz": (self.T,), "band": (self.T, self.width)}[self.form]
        weight = (torch.randn(*head, *own, generator=self.generator) / (self.n * self.K) ** 0.5).to(self.wdtype)
        t, s = torch.arange(self.T).unsqueeze(1), torch.arange(self.T)
        outside = s > t + self.diag if self.fill == "lower" else s < t + self.diag
        if self.form == "band":  # what stands for tokens before token 0
            outside = t + torch.arange(self.width) < self.width - 1
        outside = {"dense": outside.unsqueeze(-1), "toeplitz": torch.arange(self.T) >= self.n}.get(self.form, outside)
        poisoned = weight.masked_fill(outside, float("nan"))
        return weight, poisoned, torch.randn(*head, self.T, generator=self.generator).to(self.wdtype), outside


def close(name, got, want, case):
    got, want = got.clone().double(), want.double()
    error = float((got - want).norm() / want.norm().clamp_min(1e-20))
    assert error < TOLERANCE[case.dtype] or float((got - want).abs().max()) < 1e-6, (name, error, vars(case))


@pytest.mark.parametrize("seed", range(int(os.environ.get("TRIGEN_RANDOM_CASES", "12"))))
def test_random_case(device, library, monkeypatch, tmp_path_factory, seed):  # noqa: F811
    import emulated

    global _runtime
    if _runtime is None:
        cache = os.environ.get("TRIGEN_TEST_CACHE", tmp_path_factory.mktemp("generic") / "cache.db")
        _runtime = library.Runtime(driver=f"emulated:{emulated.TARGET}", layers=[cache], miss="generic")
    monkeypatch.setattr(library, "_shared", _runtime)
    case = Case(seed)
    (x, xd), (dy, dyd), (gate, gd), (residual, rd) = (case.activation_tensor(device.put) for _ in range(4))
    weight, poisoned, bias, outside = case.weight()
    wd, bd = device.put(poisoned), device.put(bias)
    options, last = (case.pad, case.layout, case.fill, case.diag), ("default", case.form)
    if case.epilogue:
        got = cuda.forward_pre(xd, wd, bd, gd, rd, *options, case.activation, *last)
        want = plain.forward_pre(x, weight, bias, gate, residual, *options, case.activation, *last)
        close("y", got[0], want[0], case)
        close("pre", got[1], want[1], case)
    else:
        close(
            "y",
            cuda.forward(xd, wd, bd, None, None, *options, "none", *last),
            plain.forward(x, weight, bias, None, None, *options, "none", *last),
            case,
        )
    added = (rd, residual) if case.epilogue else (None, None)
    options = (*options, *last)
    close("dx", cuda.grad_input(dyd, wd, added[0], *options), plain.grad_input(dy, weight, added[1], *options), case)
    dw, db = cuda.grad_weight(dyd, xd, weight.shape, case.wdtype, True, *options)
    want_w, want_b = plain.grad_weight(dy, x, weight.shape, case.wdtype, True, *options)
    close("dw", dw, want_w, case)
    close("db", db, want_b, case)
    assert dw.masked_select(outside).count_nonzero() == 0


_runtime = None
