"""The Python example of README.md, as a reader would run it on a model of the common kind."""

import re

import pytest

torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")

import trigen
import trigen.torch as tt


class Masked(torch.nn.Module):
    def __init__(self, tokens):
        super().__init__()
        self.conv = torch.nn.Conv1d(tokens, tokens, 1)

    def forward(self, x):
        self.conv.weight.data = torch.tril(self.conv.weight.squeeze(-1)).unsqueeze(-1)
        return self.conv(x) + x


def test_the_example(repository, monkeypatch, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (repository / "README.md").read_text(), re.S)
    tuned = []
    monkeypatch.setattr(trigen.tuning, "tune_problems", lambda problems, **options: tuned.extend(problems))  # test_tuning.py tunes
    names = {"model": Masked(512), "tokens": torch.randn(2, 512, 8)}
    exec(code, names)
    gradient = names["mixer"].weight.grad.squeeze(-1)
    assert gradient.triu(1).count_nonzero() == 0 and gradient.tril().count_nonzero() > 0
    assert isinstance(names["model"].conv, tt.TriangularConv1d) and "conv: TriangularConv1d(512" in capsys.readouterr().out
    assert [text.split(",")[0] for text in tuned] == ["forward", "grad_weight"]
