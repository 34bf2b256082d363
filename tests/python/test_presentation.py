"""What users read of the package's objects: help(), print(), a notebook's tables, convert()'s report."""

import inspect

import pytest

torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")

import trigen
import trigen.torch as tt
from torch import nn
from torch.func import jacfwd, jvp


def test_everything_public_has_a_docstring_of_its_own():
    bare = []
    for module in (trigen, tt):
        for name in module.__all__:
            value = getattr(module, name)
            if not callable(value):
                continue
            said = inspect.getdoc(value)
            if not said or said.startswith(f"{name}("):  # a NamedTuple's own
                bare.append(name)
            for method, what in (
                vars(value).items() if inspect.isclass(value) and value.__module__.startswith("trigen") else ()
            ):
                if (
                    inspect.isfunction(what)
                    and not method.startswith("_")
                    and method not in ("forward", "extra_repr")
                    and not inspect.getdoc(what)
                ):
                    bare.append(f"{name}.{method}")
    assert not bare
    assert "grad = dL/dy" in inspect.getdoc(tt.grad_input) and "BadRequest" in inspect.getdoc(trigen.parse_problem)


def test_a_recorder_and_a_tune_say_what_they_hold():
    mixer = tt.TriangularConv1d(4, bias=False)
    with trigen.record() as seen, torch.no_grad():
        mixer(torch.randn(2, 4, 3))
        mixer(torch.randn(2, 4, 3))
    assert repr(seen) == "<trigen.Recorder of 1 problems in 2 calls>"
    assert (
        "<td style='text-align:left'>forward,dtype=f32,B=2,H=1,T=4,D=3,K=1,pad=0</td><td style='text-align:left'>2</td>"
        in seen._repr_html_()
    )
    tuned = trigen.TuneResult(["forward"], ["trigen", "tune"], "kernel  9 us <best>\n")
    assert repr(tuned) == "<trigen.TuneResult of 1 problem; print() shows it>" and str(tuned) == "kernel  9 us <best>"
    assert tuned._repr_html_() == "<pre>kernel  9 us &lt;best&gt;</pre>"


def test_runtimes_plans_and_problems(emulated, library):
    from emulated import TARGET

    problem = trigen.parse_problem("forward,dtype=f16,B=2,T=8,D=16,epilogue=bias+gelu")
    assert (
        repr(problem)
        == "<trigen problem op=forward, dtype=f16, wdtype=f16, B=2, H=1, T=8, D=16, K=1, pad=0, rows=1, align=16, walign=16, bias=1, activation=gelu>"
    )
    runtime = trigen.Runtime(driver=f"emulated:{TARGET}", no_jit=True)
    assert repr(runtime) == f"<trigen.Runtime(no_jit=True, driver='emulated:{TARGET}')>"
    runtime.close()
    assert repr(runtime).endswith(", closed>")
    plan = library.shared_runtime().plan("forward,dtype=f32,B=1,T=8,D=8", 0)
    assert repr(plan).startswith(
        "<trigen.Plan of forward,dtype=f32,B=1,H=1,T=8,D=8,K=1,pad=0: "
    ) and f" for {TARGET}, predicted, on device 0>" in repr(plan)
    shown = tt.launch.PlanList([plan.describe()])._repr_html_()
    assert shown.count("<tr>") == 2 and "predicted" in shown
    plan.destroy()
    assert repr(plan) == "<trigen.Plan, destroyed>"


def test_a_frozen_mixer_and_a_cache():
    mixer = tt.TriangularConv1d(4)
    frozen = tt.freeze(mixer, torch.randn(2, 4, 3))
    assert repr(frozen) == (
        "FrozenMixer(TriangularConv1d(4, kernel_size=1, heads=1, bias=True, pad=0), x=[2, 4, 3] torch.float32 on the CPU: "
        "plain torch operations)"
    )
    cache = mixer.new_cache(2, 3)
    mixer.decode(torch.randn(2, 2, 3), cache)
    assert repr(cache) == "DecodeCache(batch=2, features=3, 2 of 4 tokens, torch.float32, cpu)"


def test_a_report_has_no_line_for_every_ordinary_layer():
    T = 8
    blocks = [
        nn.ModuleDict(
            dict(mix=nn.Conv1d(T, T, 1), up=nn.Linear(6, 24), down=nn.Linear(24, 6), wide=nn.Linear(T, 4 * T))
        )
        for _ in range(12)
    ]
    report = tt.convert(nn.Sequential(*blocks), tokens=T)
    lines = str(report).splitlines()
    assert len(report.skipped) == 36 and len(lines) == 1 + 2 + 1 and max(map(len, lines)) < 140
    assert lines[0] == "0.mix, 1.mix, 2.mix and 9 more: TriangularConv1d(8, kernel_size=1, heads=1, bias=True, pad=0)"
    assert lines[1] == "0.up, 0.down, 1.up and 21 more: left as they are: another size than tokens=8"
    assert lines[2] == "0.wide, 1.wide, 2.wide and 9 more: left as they are: a weight that is not square"
    assert report._repr_html_().startswith("<pre>0.mix, 1.mix, 2.mix and 9 more: TriangularConv1d(8, ")


def test_compiled_code_never_loses_a_tangent():
    """Under torch.compile forward mode is computed by falling back to eager code, or refused; zeros would be silent."""
    x, tangent, weight = (torch.randn(size, dtype=torch.float64) for size in ((2, 4, 3), (2, 4, 3), (4, 4, 1)))

    def mix(x):
        return tt.triangular_conv1d(x, weight, activation="gelu")

    def dual(x, tangent):
        with torch.autograd.forward_ad.dual_level():
            return torch.autograd.forward_ad.unpack_dual(mix(torch.autograd.forward_ad.make_dual(x, tangent))).tangent

    want = jvp(mix, (x,), (tangent,))[1]
    assert want.abs().max() > 0
    for fullgraph in (False, True):

        def compiled(function):
            torch._dynamo.reset()
            return torch.compile(function, backend="aot_eager", fullgraph=fullgraph)

        for case in (
            lambda: compiled(lambda x, t: jvp(mix, (x,), (t,))[1])(x, tangent),
            lambda: jvp(compiled(mix), (x,), (tangent,))[1],
            lambda: compiled(dual)(x, tangent),
            lambda: (compiled(lambda x: jacfwd(mix)(x))(x) * tangent).sum((-3, -2, -1)),
        ):
            try:
                got = case()
            except Exception as refused:
                assert (
                    "forward-mode" in str(refused) or "forward mode" in str(refused) or "functorch" in str(refused)
                ), refused
                continue
            torch.testing.assert_close(got, want)
