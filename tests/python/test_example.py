"""The training example at a small size: losses of trigen and plain PyTorch over 200 steps, and its pictures."""

import importlib.util
import json

import pytest

torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_losses_agree_over_200_steps(repository, tmp_path, capsys, dtype):
    spec = importlib.util.spec_from_file_location("train_mixer", repository / "examples/python/train_mixer.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    sizes = "--tokens 16 --features 16 --layers 2 --batch 8 --rate 3e-3 --steps 200 --device cpu --json".split()
    status = example.main([*sizes, "--dtype", dtype, "--out", str(tmp_path)])
    result = json.loads(capsys.readouterr().out.splitlines()[0])
    assert status == 0 and result["agrees"], result
    assert result["arms"]["trigen"]["last_loss"] < 0.7 * result["arms"]["trigen"]["first_loss"]
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip("[SKIP] matplotlib is not installed: pictures are not made")
    for name in ("loss.png", "step_time.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_the_comparison_can_fail(repository, capsys):
    spec = importlib.util.spec_from_file_location("train_mixer", repository / "examples/python/train_mixer.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    sizes = (
        "--tokens 8 --features 8 --layers 1 --batch 2 --steps 5 --device cpu --dtype bfloat16 --tolerance 1e-9".split()
    )
    assert example.main(sizes) == 1
    assert "the losses part by" in capsys.readouterr().err
