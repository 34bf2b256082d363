"""Mistakes that look like something else: each is refused, said, or means what was meant."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import warnings

import pytest

torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")

import trigen
import trigen.torch as tt
from torch import nn


def test_conv1d_and_linear_under_another_name():
    """A search and replace of nn.Conv1d(512, 512, 1) made 512 taps, of nn.Linear(512, 512) a bias of 512."""
    with pytest.raises(
        TypeError,
        match=r"TriangularConv1d\(512, 512, 1\) has 3 arguments without a name; .*becomes TriangularConv1d\(512, 1\)",
    ):
        tt.TriangularConv1d(512, 512, 1)
    with pytest.raises(TypeError, match=r"nn.Conv1d\(8, 8, 3, 1\) becomes TriangularConv1d\(8, 3\)"):
        tt.TriangularConv1d(8, 8, 3, 1)
    for make in (lambda: tt.TriangularLinear(512, 512), lambda: tt.TriangularConv1d(512, bias=512)):
        with pytest.raises(
            TypeError, match=r"bias=512; allowed: True or False; nn.Linear\(512, 512\) becomes TriangularLinear\(512\)"
        ):
            make()
    with pytest.raises(
        TypeError,
        match=r"\(512, 512\) would have 512 taps; nn.Conv1d\(512, 512, 1\) becomes TriangularConv1d\(512, 1\); as many taps as "
        r"tokens are written kernel_size=512",
    ):
        tt.TriangularConv1d(512, 512)
    assert tt.TriangularConv1d(4, kernel_size=4).kernel_size == 4 and tt.TriangularConv1d(1, 1).kernel_size == 1
    for named, text in (
        (
            dict(kernel_size=1),
            r"\(64, 64, kernel_size=1\) gives kernel_size twice, by its place and by its name; nn.Conv1d\(T, T, K\) becomes",
        ),
        (
            dict(in_channels=64),
            r"no argument is called in_channels; allowed: tokens, kernel_size, heads, .*; nn.Conv1d\(T, T, K\) becomes",
        ),
    ):
        with pytest.raises(TypeError, match=text):
            tt.TriangularConv1d(64, 64, **named)
    with pytest.raises(
        TypeError,
        match=r"no argument is called in_features; allowed: tokens, bias, .*; nn.Linear\(T, T\) becomes TriangularLinear\(T\)",
    ):
        tt.TriangularLinear(in_features=64, out_features=64)


@pytest.mark.parametrize("package, name", [("torch", "PyTorch 2.4"), ("jax", "JAX 0.6")])
def test_a_framework_that_is_not_there_is_named_with_its_command(package, name, repository):
    code = f"import sys; sys.modules[{package!r}] = None; import trigen.{package}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(repository / "python")},
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        f"ModuleNotFoundError: trigen.{package} needs {name} or later, which is not installed here: pip install {package}"
    )
    assert "During handling" not in done.stderr


def said_of(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(one.message) for one in caught if issubclass(one.category, trigen.TrigenWarning)]


def test_a_transposed_x_is_said_once(monkeypatch):
    monkeypatch.setattr(trigen.errors, "said", set())
    mixer, x = tt.TriangularConv1d(16), torch.randn(2, 16, 5)
    assert not said_of(lambda: (mixer(x), mixer(x[:, :3]), mixer(torch.randn(2, 16, 16))))
    decoder = mixer.new_cache(2, 16)
    assert not said_of(lambda: mixer.decode(torch.randn(2, 5, 16), decoder))  # a prompt is a prefix
    (said,) = said_of(lambda: [mixer(x.transpose(1, 2)) for _ in range(2)])
    assert (
        "x has shape [2, 5, 16], taken as [batch, tokens, features] (layout=btd): a prefix of 5 of weight's 16 tokens, with 16 features"
        in said
    )
    assert "give layout='bdt'" in said
    trigen.errors.said.clear()
    (said,) = said_of(lambda: tt.TriangularLinear(16)(x))
    assert "taken as [batch, features, tokens] (layout=bdt)" in said


def test_a_bare_tensor_is_one_argument(monkeypatch):
    tuned = []
    monkeypatch.setattr(trigen.tuning, "tune_problems", lambda problems, **options: tuned.extend(problems))
    mixer, x = tt.TriangularConv1d(8), torch.randn(2, 8, 6)
    trigen.tune(mixer, x)
    assert tuned == [
        "forward,dtype=f32,B=2,H=1,T=8,D=6,K=1,pad=0,epilogue=bias",
        "grad_weight,dtype=f32,B=2,H=1,T=8,D=6,K=1,pad=0,epilogue=bias+zero_outside",
    ]
    model = nn.Sequential(nn.Conv1d(8, 8, 1))
    model[0].weight.data = model[0].weight.data.squeeze(-1).tril().unsqueeze(-1)
    assert tt.convert(model, tokens=8, example_inputs=x).converted


class Owner(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix, self.causal, self.checked = nn.Conv1d(8, 8, 1), True, False

    def forward(self, x):
        weight = self.mix.weight
        return nn.functional.conv1d(
            x, weight.squeeze(-1).tril().unsqueeze(-1) if self.causal else weight, self.mix.bias
        )


def test_a_flag_that_is_not_there():
    model = nn.Sequential(Owner())
    with pytest.raises(
        ValueError,
        match=r"unmask='casual' is no flag of an owner of 0.mix; allowed: causal, checked; the model was put back as it was",
    ):
        tt.convert(model, tokens=8, unmask=("causal", "casual"))
    assert type(model[0].mix) is nn.Conv1d and model[0].causal is True
    report = tt.convert(model, tokens=8, unmask="causal")  # a name, not its letters
    assert report.unmasked == ["0.causal"] and model[0].causal is False
    model = nn.Sequential(Owner())
    assert tt.convert(model, tokens=8, unmask="checked").unmasked == []  # there, and off already


def test_a_failed_tune_has_a_reason(monkeypatch, tmp_path, capsys):
    script = tmp_path / "trigen"
    script.write_text("#!/bin/sh\necho working >&2\necho 'no such target' >&2\nexit 2\n")
    script.chmod(0o755)
    monkeypatch.setenv("TRIGEN_PROGRAM", str(script))
    for quiet, shown in ((False, "working\nno such target\n"), (True, "")):
        with pytest.raises(trigen.TrigenError, match=r"failed with 2: working\nno such target$"):
            trigen.tune_problems(["forward,dtype=f16,B=1,T=8,D=8"], quiet=quiet)
        assert capsys.readouterr().err == shown
    # The program's own errors are raised and not printed as well.
    script.write_text(
        "#!/bin/sh\n(echo '[1/2] working'; echo 'trigen: error: none works:'; echo '  simt: wrong'; echo 'trigen: tuned 1') >&2\nexit 1\n"
    )
    with pytest.raises(trigen.TrigenError, match=r"^`trigen tune` failed with 1: none works:\n  simt: wrong$"):
        trigen.tune_problems(["forward,dtype=f16,B=1,T=8,D=8"])
    assert capsys.readouterr().err == "[1/2] working\ntrigen: tuned 1\n"
    script.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(trigen.TrigenError, match="failed with 3: it said nothing; run it by hand"):
        trigen.tune_problems(["forward,dtype=f16,B=1,T=8,D=8"])


def test_a_result_is_as_wide_as_the_terminal(tmp_path, repository):
    """The program writes into a file, and what it wrote is printed on the terminal."""
    script = tmp_path / "trigen"
    script.write_text('#!/bin/sh\necho "<${COLUMNS-none}>"\n')
    script.chmod(0o755)
    code = "import trigen; print(trigen.tune_problems(['forward,dtype=f16,B=1,T=8,D=8']))"
    environment = {**os.environ, "TRIGEN_PROGRAM": str(script), "PYTHONPATH": str(repository / "python")}
    environment.pop("COLUMNS", None)
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment).stdout
        == "<none>\n"
    )
    ours, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 72, 0, 0))
    subprocess.run([sys.executable, "-c", code], stdout=terminal, check=True, env=environment)
    assert os.read(ours, 100) == b"<72>\r\n"
    os.close(ours), os.close(terminal)


@pytest.mark.parametrize(
    "options", [dict(), dict(heads=2, kernel_size=3, activation="gelu"), dict(layout="bdt")], ids=str
)
def test_an_empty_batch_is_empty(options):
    """As nn.Conv1d has it: distributed evaluation ends with one."""
    mixer = tt.TriangularConv1d(6, **options)
    x = torch.zeros((0, 6, 4) if mixer.layout == "btd" else (0, 4, 6), requires_grad=True)
    y = mixer(x)
    assert y.shape == x.shape
    dx, *rest = torch.autograd.grad(y.sum(), (x, *mixer.parameters()))
    assert dx.shape == x.shape and all(
        one.count_nonzero() == 0 and one.shape == parameter.shape for one, parameter in zip(rest, mixer.parameters())
    )
    with trigen.record() as seen:
        mixer(x)
    assert not seen.problems


def test_an_option_that_is_none(monkeypatch):
    monkeypatch.setattr(trigen.library, "_shared", None)
    monkeypatch.setattr(trigen.library, "_shared_options", {})
    with pytest.raises(TypeError, match="configure has no option 'mis'; allowed: layers, read_only, miss, no_jit, "):
        trigen.configure(mis="generic")
    with pytest.raises(ValueError, match="miss='generics' is not known; allowed: first_choice, generic, error"):
        trigen.configure(miss="generics")
    trigen.configure(miss="generic")
    assert trigen.library._shared_options == {"miss": "generic"}
