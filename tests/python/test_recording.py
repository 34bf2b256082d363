"""The recorder: problems and counts of forward and backward passes."""

import pytest

torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")

import trigen
import trigen.torch as tt


def model():
    return torch.nn.Sequential(tt.TriangularConv1d(8, 3), tt.TriangularConv1d(8, 3), tt.TriangularConv1d(8, heads=2, bias=False, activation="gelu"))


EXPECTED = {
    "forward,dtype=f32,B=2,H=1,T=8,D=6,K=3,pad=1,epilogue=bias": 2,
    "forward,dtype=f32,B=2,H=2,T=8,D=3,K=1,pad=0,epilogue=gelu+pre": 1,
    "grad_input,dtype=f32,B=2,H=2,T=8,D=3,K=1,pad=0": 1,
    "grad_weight,dtype=f32,B=2,H=2,T=8,D=3,K=1,pad=0,epilogue=zero_outside": 1,
    "grad_input,dtype=f32,B=2,H=1,T=8,D=6,K=3,pad=1": 1,
    "grad_weight,dtype=f32,B=2,H=1,T=8,D=6,K=3,pad=1,epilogue=bias+zero_outside": 2,
}


@pytest.mark.parametrize("way", ["eager", "operators"])
def test_a_training_step(way, tmp_path, library):
    mixer, x = model(), torch.randn(2, 8, 6)
    run = mixer if way == "eager" else torch.compile(mixer, fullgraph=True, backend="aot_eager")
    with trigen.record() as outer:
        with trigen.record() as seen:
            run(x).sum().backward()
    assert seen.counts == outer.counts == EXPECTED
    run(x)
    assert sum(seen.counts.values()) == 8  # nothing is recorded outside
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
    assert seen.problems == ["forward,dtype=bf16,B=3,H=1,T=5,D=6,K=1,pad=0,layout=bdt,fill=upper,diag=1,wdtype=f32,walign=16,epilogue=bias"]


def test_tune_hands_over_what_the_model_meets(monkeypatch, tmp_path):
    script = tmp_path / "trigen"
    script.write_text("#!/bin/sh\ncat \"$3\"\n")
    script.chmod(0o755)
    monkeypatch.setenv("TRIGEN_PROGRAM", str(script))
    mixer, x = model(), torch.randn(2, 8, 6)
    done = trigen.tune(mixer, (x,))
    assert done.output.splitlines() == done.problems and set(done.problems) == set(EXPECTED)
    assert all(parameter.grad is None for parameter in mixer.parameters())
    done = trigen.tune(mixer, {"input": x}, backward=False)
    assert set(done.problems) == {"forward,dtype=f32,B=2,H=1,T=8,D=6,K=3,pad=1,epilogue=bias", "forward,dtype=f32,B=2,H=2,T=8,D=3,K=1,pad=0,epilogue=gelu"}
    with pytest.raises(ValueError, match="did the recorded run reach a trigen operator"):
        trigen.tune(torch.nn.Linear(6, 6), (x,))
