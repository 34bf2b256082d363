"""The recorder: problems and counts of forward and backward passes."""

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")

import trigen
import trigen.torch as tt


def model():
    return torch.nn.Sequential(
        tt.TriangularConv1d(8, 3),
        tt.TriangularConv1d(8, 3),
        tt.TriangularConv1d(8, heads=2, bias=False, activation="gelu"),
    )


EXPECTED = {
    "forward,dtype=f32,B=2,H=1,T=8,D=6,K=3,pad=1,epilogue=bias": 2,
    "forward,dtype=f32,B=2,H=2,T=8,D=3,K=1,pad=0,epilogue=gelu+pre": 1,
    "grad_input,dtype=f32,B=2,H=2,T=8,D=3,K=1,pad=0": 1,
    "grad_weight,dtype=f32,B=2,H=2,T=8,D=3,K=1,pad=0,epilogue=zero_outside": 1,
    "grad_input,dtype=f32,B=2,H=1,T=8,D=6,K=3,pad=1": 1,
    "grad_weight,dtype=f32,B=2,H=1,T=8,D=6,K=3,pad=1,epilogue=bias+zero_outside": 2,
}


DERIVATIVE = (
    "grad_epilogue,dtype=f32,B=2,H=1,T=1,D=48,K=1,pad=0,epilogue=gelu"  # of 6 features, which 16 bytes do not divide
)


@pytest.mark.parametrize("way", ["eager", "operators"])
def test_a_training_step(way, tmp_path, library):
    mixer, x = model(), torch.randn(2, 8, 6)
    run = mixer if way == "eager" else torch.compile(mixer, fullgraph=True, backend="aot_eager")
    with trigen.record() as outer:
        with trigen.record() as seen:
            run(x).sum().backward()
    expected = {**EXPECTED, DERIVATIVE: 1} if way == "eager" else EXPECTED  # the compiler keeps PyTorch's operations
    assert seen.counts == outer.counts == expected
    run(x)
    assert sum(seen.counts.values()) == sum(expected.values())  # nothing is recorded outside
    seen.save(tmp_path / "problems.txt")
    lines = (tmp_path / "problems.txt").read_text().splitlines()
    assert lines[0].endswith("  # met 2 times") and lines[-1].endswith("  # met 1 time")
    for line in lines:
        text = line.split("#")[0].strip()
        assert trigen.format_problem(trigen.parse_problem(text)) == text


def test_autocast_prefix_layouts_and_what_has_no_kernel():
    mixer = tt.TriangularConv1d(8, layout="bdt", fill="upper", diagonal=1)
    with trigen.record() as seen:
        with torch.autocast("cpu", torch.bfloat16):
            mixer(torch.randn(3, 6, 5))
        mixer.double()(torch.randn(3, 6, 5).double())
    assert seen.problems == [
        "forward,dtype=bf16,B=3,H=1,T=5,D=6,K=1,pad=0,layout=bdt,fill=upper,diag=1,wdtype=f32,walign=16,epilogue=bias"
    ]


def test_tune_hands_over_what_the_model_meets(monkeypatch, tmp_path):
    script = tmp_path / "trigen"
    script.write_text('#!/bin/sh\ncat "$3"\n')
    script.chmod(0o755)
    monkeypatch.setenv("TRIGEN_PROGRAM", str(script))
    mixer, x = model(), torch.randn(2, 8, 6)
    done = trigen.tune(mixer, (x,))
    assert done.output.splitlines() == done.problems and set(done.problems) == {*EXPECTED, DERIVATIVE}
    assert all(parameter.grad is None for parameter in mixer.parameters())
    done = trigen.tune(mixer, {"input": x}, backward=False)
    assert set(done.problems) == {
        "forward,dtype=f32,B=2,H=1,T=8,D=6,K=3,pad=1,epilogue=bias",
        "forward,dtype=f32,B=2,H=2,T=8,D=3,K=1,pad=0,epilogue=gelu",
    }
    with pytest.raises(ValueError, match="did the recorded run reach a trigen operator"):
        trigen.tune(torch.nn.Linear(6, 6), (x,))


def groups(text):
    """The problems of a list, a list for each layer: what stands between a forward and the next."""
    layers = []
    for line in text.splitlines():
        problem = line.split("#")[0].strip()
        if problem.startswith("forward"):
            layers.append([])
        if problem:
            layers[-1].append(problem)
    return layers


CORE = groups((Path(__file__).resolve().parents[2] / "problems" / "core.txt").read_text())


@pytest.mark.parametrize("problems", CORE, ids=[layer[0] for layer in CORE])
def test_the_core_list_is_what_training_asks(problems):
    """A training step of each of its layers, with one sequence and 16 features a head: the batch and the features alone differ."""

    def small(text):
        return re.sub(r"\bD=\d+", "D=16", re.sub(r"\bB=\d+", "B=1", text))

    size = dict(part.split("=") for part in problems[0].split(",")[1:])
    heads, tokens = int(size["H"]), int(size["T"])
    mixer, x = tt.TriangularConv1d(tokens, heads=heads), torch.randn(1, tokens, 16 * heads)
    if "wdtype" not in size:  # cast once per step by the caller
        mixer = mixer.half()
    with trigen.record() as seen, torch.autocast("cpu", torch.float16):
        mixer(x.requires_grad_()).float().square().mean().backward()
    assert seen.problems == [small(problem) for problem in problems]
