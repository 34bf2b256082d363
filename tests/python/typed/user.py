"""What a user's code may look like under `mypy --strict` (test_typing.py); never run. Lines that must be refused end in mypy's error code."""

from typing import List, Tuple

import torch
import trigen
import trigen.torch as tt
from torch import nn


class Block(nn.Module):
    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.mix = tt.TriangularConv1d(
            tokens, 3, heads=2, activation="gelu", padding="causal", dtype=torch.bfloat16, device="cuda"
        )
        self.last = tt.TriangularLinear(tokens, fill="upper", diagonal=1)
        self.local = tt.TriangularConv1d(tokens, form="band", width=16)
        self.gating = tt.CausalSpatialGatingUnit(64, tokens, activation=nn.SiLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.mix(x, residual=x)
        return y


def functional(x: torch.Tensor, weight: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
    y = tt.triangular_conv1d(x, weight, layout="bdt", math="tf32", padding=2)
    y, pre = tt.forward_pre(y, weight, activation="silu")
    y = tt.triangular_conv1d(y, weight, form="band")
    dx = tt.grad_input(y, weight)
    dw, db = tt.grad_weight(y, dx, weight.shape, weight.dtype, True)
    return tt.forward(y, weight) + pre, dw + db


def use(model: nn.Module, x: torch.Tensor) -> List[str]:
    report = tt.convert(
        model, tokens=512, example_inputs=(x,), unmask=("causal",), select=lambda name, module: "mix" in name
    )
    print(report, list(report.converted))
    trigen.configure(layers=["cache.db"], miss="generic", no_jit=True)
    tuned: trigen.TuneResult = trigen.tune(model, x, arch="sm_70", budget="60s", quiet=True)
    with trigen.record() as seen:
        model(x)
    seen.save("problems.txt")
    tt.set_fallback("plain")
    available = trigen.is_available()
    runtime = trigen.Runtime(driver="emulated:sm_70")
    plan = runtime.plan(trigen.parse_problem("forward,dtype=f16,B=1,T=8,D=8"), 0)
    plan.run(x=trigen.DeviceTensor(x.data_ptr()), w=0)
    frozen = tt.freeze(tt.TriangularConv1d(8), x)
    y: torch.Tensor = frozen(x)
    decoder = tt.TriangularConv1d(8)
    mixed: torch.Tensor = tt.scan(x, target=x[0, :, 0], decay=0.95, activation="silu", layout="bdt")
    repeat = tt.StructuredMixer(8, ("row", "column"), heads=2, decay="shared", diagonal="constant")
    y, state = repeat.step(mixed[:, 0], 0, repeat.state(mixed))
    rows: torch.Tensor = decoder.decode(y, decoder.new_cache(1, 8, dtype=torch.float16))
    return [info.candidate for info in tt.plans()] + tuned.problems + [available.reason, str(rows)]


def wrong(model: nn.Module, x: torch.Tensor) -> None:
    trigen.configure(mis="generic")  # refused: call-arg
    trigen.configure(miss="generics")  # refused: arg-type
    trigen.tune(model, x, archs="sm_70")  # refused: call-arg
    tt.TriangularConv1d(8, layout="dbt")  # refused: arg-type
    tt.triangular_conv1d(x, x, math="fp32")  # refused: arg-type
    tt.triangular_conv1d(x, x, padding="valid")  # refused: arg-type
    tt.convert(model, fill="both")  # refused: arg-type
    tt.StructuredMixer(8, "rows")  # refused: arg-type
    tt.set_fallback("dense")  # refused: arg-type
    tt.plans()[0].kernel  # refused: attr-defined
