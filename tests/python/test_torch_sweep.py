"""The peers of bench/torch_sweep.py compute what trigen's kernels compute, compiled too, and its lines are those of a sweep."""

import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import torch_sweep as sweep  # noqa: E402

PROBLEMS = [
    "forward,dtype=f16,B=3,T=24,D=40,epilogue=bias+gelu+residual",
    "forward,dtype=f32,B=2,T=17,D=9,layout=bdt,epilogue=bias+gate",
    "forward,dtype=f16,B=2,H=4,T=20,D=16,wdtype=f32,epilogue=bias",
    "forward,dtype=f16,B=2,T=12,D=20,K=5,epilogue=bias",
    "grad_input,dtype=f16,B=3,T=24,D=40,wdtype=f32,epilogue=residual",
    "grad_input,dtype=f32,B=2,T=17,D=9,layout=bdt",
    "grad_input,dtype=f16,B=2,H=2,T=20,D=16",
    "grad_input,dtype=f16,B=2,T=12,D=20,K=4",
    "grad_weight,dtype=f16,B=3,T=24,D=40,wdtype=f32,epilogue=bias+zero_outside",
    "grad_weight,dtype=f32,B=2,T=17,D=9,layout=bdt,epilogue=zero_outside",
    "grad_weight,dtype=f16,B=2,H=2,T=20,D=16,epilogue=bias+zero_outside",
    "grad_weight,dtype=f16,B=2,T=12,D=20,K=3,epilogue=bias+zero_outside",
]


@pytest.mark.parametrize("text", PROBLEMS)
def test_every_peer_agrees_with_the_kernel(emulated, library, text):
    p = sweep.Problem(text)
    t = sweep.Tensors(p, emulated.put, torch.Generator().manual_seed(1))
    plan = library.shared_runtime().plan(text, 0)
    workspace = emulated.allocate(max(16, plan.workspace_size))
    expected = [result.clone() for result in sweep.trigen_arm(p, plan, workspace, lambda: 0)(t)]
    assert emulated.reports() == "[]"
    arms = sweep.peers(p)
    assert arms
    for name, arm in arms.items():
        got = arm(t)
        assert [one.shape for one in got] == [one.shape for one in expected] and [one.dtype for one in got] == [
            one.dtype for one in expected
        ], name
        assert sweep.difference(p, got, expected) < (2e-6 if p.dtype == torch.float32 else 2e-3), name


def test_a_wrong_result_differs():
    p = sweep.Problem(PROBLEMS[8])
    t = sweep.Tensors(p, lambda tensor: tensor, torch.Generator().manual_seed(1))
    got = sweep.peers(p)["flat"](t)
    for number in range(2):
        wrong = [one.clone() for one in got]
        wrong[number].view(-1)[-1] += 30
        assert sweep.difference(p, wrong, got) > 2e-2
    outside = [one.clone() for one in got]
    outside[0][0, 0, 5] = float("nan")
    assert sweep.difference(p, outside, got) == 0


def test_problems_without_a_peer_are_refused():
    for text in (
        "forward,dtype=f32,B=1,H=2,T=4,D=4,K=3",
        "forward,dtype=f32,B=1,T=4,D=4,diag=1",
        "decode,dtype=f32,B=1,T=4,D=4",
        "forward,dtype=f32,B=1,T=4,D=4,epilogue=bias+silu",
    ):
        with pytest.raises(ValueError, match="peer"):
            sweep.Problem(text)


def test_lines_continue_a_sweep(tmp_path):
    tuned = {"table": "tuned", "problem": PROBLEMS[0], "floor_us": 3.5, "bound": "bytes", "got": 1.2}
    results = tmp_path / "sweep.jsonl"
    results.write_text("\n".join(json.dumps(row) for row in ({**tuned, "table": "untuned"}, tuned)) + "\n")
    ((problem, row),) = sweep.problems_of(results)
    line = sweep.first_line(problem, row, {"device": "a GPU"})
    assert line["table"] == sweep.TABLE and line["floor_us"] == 3.5 and line["device"] == "a GPU" and "got" not in line


def test_summary_is_that_of_the_sweep():
    assert (
        sweep.summary([2.0, 0.5, 1.0])
        == "3 rows, 2 not slower, geometric mean 1.000, tenth percentile 0.600, worst 0.500"
    )
    assert sweep.summary([]) == "no figures"
