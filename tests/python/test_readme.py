"""The Python example of README.md, as a reader would run it."""

import re

import pytest

torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")

import trigen
import trigen.torch as tt


def test_the_example(repository, monkeypatch, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (repository / "README.md").read_text(), re.S)
    tuned = []
    monkeypatch.setattr(
        trigen.tuning, "tune_problems", lambda problems, **options: tuned.extend(problems)
    )  # test_tuning.py tunes
    names = {}
    exec(code, names)
    gradient = names["mixer"].weight.grad.squeeze(-1)
    assert gradient.triu(1).count_nonzero() == 0 and gradient.tril().count_nonzero() > 0
    assert isinstance(names["model"][0], tt.TriangularConv1d) and "0: TriangularConv1d(512" in capsys.readouterr().out
    assert [text.split(",")[0] for text in tuned] == (["forward", "grad_weight"] if torch.cuda.is_available() else [])
