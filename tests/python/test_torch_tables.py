"""The peers of bench/torch_tables.py compute what trigen computes, and its lists and lines are read as the program writes them."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
import trigen.torch as tt  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import torch_tables as tables  # noqa: E402


@pytest.mark.parametrize("op", ["forward", "grad_input", "grad_weight"])
@pytest.mark.parametrize(
    "sizes", ["B=2,T=12,D=20,K=4", "B=2,T=12,D=20,K=4,pad=3", "B=2,T=12,D=20,K=5", "B=3,H=2,T=10,D=8"]
)
def test_every_peer_agrees_with_the_operator(op, sizes):
    p = tables.Problem(f"{op},dtype=f32,{sizes}" + (",epilogue=zero_outside" if op == "grad_weight" else ""))
    t = tables.Tensors(p, "cpu", torch.Generator().manual_seed(1))
    weight = t.weight if p.H > 1 else t.weight[0]
    if op == "forward":
        expected = tt.forward(t.x, weight, None, None, None, p.pad)
    elif op == "grad_input":
        expected = tt.grad_input(t.dy, weight, None, p.pad)
    else:
        expected = tt.grad_weight(t.dy, t.x, weight.shape, weight.dtype, False, p.pad)[0].view(p.H, p.T, p.T, p.K)
    arms = tables.peers(p)
    assert len(arms) >= (1 if p.H > 1 and op == "grad_weight" else 2)
    for name, arm in arms.items():
        got = arm(t)
        assert got.shape == expected.shape, name
        assert tables.difference(p, got, expected) < 1e-5, name


def test_rows_of_the_shipped_list():
    rows = tables.read_rows(ROOT / "bench" / "hopper.txt")
    assert {row["table"] for row in rows} == {"taps", "heads"}
    assert rows[0]["asked"] == 2.5 and rows[0]["stretch"] == 3.2 and not rows[0]["at_most"]
    for row in rows:
        assert tables.peers(tables.Problem(row["problem"])), row


def test_verdicts():
    line = {"ran": True, "asked": 1.5, "stretch": 1.75}
    assert tables.verdict({**line, "got": 1.8, "failed": True}) == "fails"
    assert tables.verdict(line) == "runs"
    assert tables.verdict({**line, "ran": False}) == "missing"
    assert [tables.verdict({**line, "got": got}) for got in (1.4, 1.5, 1.8)] == ["missed", "met", "met (stretch)"]
    assert tables.verdict({"ran": True, "asked_at_most": 0.62, "got": 0.6}) == "met"


def test_problems_without_a_peer_are_refused():
    for text in (
        "forward,dtype=f32,B=1,H=2,T=4,D=4,K=3",
        "forward,dtype=f32,B=1,T=4,D=4,epilogue=bias",
        "other,dtype=f32,B=1,T=4,D=4",
    ):
        with pytest.raises(ValueError, match="peer"):
            tables.Problem(text)
