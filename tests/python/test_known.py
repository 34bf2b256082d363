"""Known calls (trigen/torch/known.py): on the emulated device, where the functional form takes CPU tensors that lie in its memory."""

import gc
import weakref

import pytest

torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")

import trigen
import trigen.torch as tt
from emulated import HAS_TF32
from test_cuda_path import TOLERANCE, device, make  # noqa: F401
from torch.utils._python_dispatch import TorchDispatchMode
from trigen.torch import cuda, functional, guards, known, launch, ops, scans

KEY = ("same", "btd", "lower", 0, None, "default", "dense")
OPTIONS = (0, "btd", "lower", 0, "none", "default", "dense")

pytestmark = pytest.mark.skipif(
    not guards.works(), reason="[SKIP] this PyTorch's TensorGuards is another one: nothing is ever known"
)


@pytest.fixture()
def learned(device):  # noqa: F811
    """Learns a call as a CUDA tensor's first call does; (function that learns, tensors)."""
    known.forget()

    def learn(x, weight, bias, autocast=None):
        known.learn((x.shape, *KEY, bias is None), x, weight, bias, OPTIONS, autocast)

    yield learn
    known.forget()


def leaves_of(device, **case):  # noqa: F811
    x, dy, _, poisoned, bias = make(
        **{"B": 2, "n": 24, "D": 16, "dtype": torch.bfloat16, "wdtype": torch.float32, **case}
    )
    leaves = [device.put(tensor).requires_grad_() for tensor in (x, poisoned, bias)]
    return leaves, device.put(dy)


class Usual(Exception):
    """The call is not known."""


class Watch(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Other(torch.Tensor):
    pass


def refuse_the_usual_way(monkeypatch):
    def usual(*_):
        raise Usual

    for module, name in ((functional, "_eager"), (functional, "_dispatched"), (ops, "_products")):
        monkeypatch.setattr(module, name, usual)


@pytest.mark.parametrize("form", ["toeplitz", "band"])
def test_a_known_step_of_a_form(device, learned, monkeypatch, form):  # noqa: F811
    (x, weight, bias), dy = leaves_of(device)
    weight = device.put(
        weight.detach()[:, 0, 0].contiguous() if form == "toeplitz" else weight.detach()[:, :8, 0].nan_to_num()
    )
    weight.requires_grad_()
    leaves, options = (x, weight, bias), (*OPTIONS[:-1], form)
    want = [
        cuda.run_forward(x.detach(), weight.detach(), bias.detach(), None, None, options, False)[0],
        *cuda.gradients(dy, x.detach(), weight.detach(), bias.detach(), options),
    ]
    known.learn((x.shape, *KEY[:-1], form, False), x, weight, bias, options, None)
    torch.autograd.grad(tt.triangular_conv1d(x, weight, bias, form=form), leaves, dy)  # learns the pair
    refuse_the_usual_way(monkeypatch)
    y = tt.triangular_conv1d(x, weight, bias, form=form)
    for one, two in zip([y, *torch.autograd.grad(y, leaves, dy)], want):
        assert torch.equal(one, two)


@pytest.mark.parametrize("with_bias", [True, False])
def test_a_known_step_has_the_numbers_of_the_usual_one(device, learned, monkeypatch, with_bias):  # noqa: F811
    (x, weight, bias), dy = leaves_of(device)
    leaves = (x, weight, bias) if with_bias else (x, weight)
    bias = bias if with_bias else None
    want = [
        cuda.run_forward(
            x.detach(), weight.detach(), None if bias is None else bias.detach(), None, None, OPTIONS, False
        )[0],
        *cuda.gradients(dy, x.detach(), weight.detach(), None if bias is None else bias.detach(), OPTIONS),
    ]
    learned(x, weight, bias)
    y = tt.triangular_conv1d(x, weight, bias)
    assert type(y.grad_fn).__name__ == "RecordedBackward"
    torch.autograd.grad(y, leaves, dy)  # learns the pair
    refuse_the_usual_way(monkeypatch)
    y = tt.triangular_conv1d(x, weight, bias)
    got = [y, *torch.autograd.grad(y, leaves, dy)]
    for one, two in zip(got, want):
        assert torch.equal(one, two)
    assert all(one.dtype == two.dtype and one.shape == two.shape for one, two in zip(got[1:], leaves))
    with torch.no_grad(), pytest.raises(Usual):  # another call: nothing to record
        tt.triangular_conv1d(x, weight, bias)


def test_what_differs_is_not_known(device, learned, monkeypatch):  # noqa: F811
    (x, weight, bias), _ = leaves_of(device)
    learned(x, weight, bias)
    refuse_the_usual_way(monkeypatch)
    call = tt.triangular_conv1d
    call(x, weight, bias)
    wide, odd = torch.randn(2, 24, 32).bfloat16()[..., ::2], torch.empty(2 * 24 * 16 + 1).bfloat16()[1:].view(2, 24, 16)
    for given in (
        (x[:1], weight, bias),
        (x[:, :23], weight, bias),
        (x.half(), weight, bias),
        (x.detach(), weight, bias),
        (wide, weight, bias),
        (odd.requires_grad_(), weight, bias),
        (x, weight.squeeze(-1), bias),
        (x, weight.bfloat16(), bias),
        (x, weight, bias[:8]),
        (x, weight.detach(), bias),
        (x, weight, None),
        (x.as_subclass(Other), weight, bias),
        (x, weight, bias.double()),
    ):
        with pytest.raises(Usual):
            call(*given)
    transposed = device.put(weight.detach()).requires_grad_()
    call(x, transposed, bias)
    transposed.data = transposed.data.transpose(0, 1)
    with pytest.raises(Usual):
        call(x, transposed, bias)
    for options in (
        dict(fill="upper"),
        dict(diagonal=1),
        dict(layout="bdt"),
        dict(padding=0),
        dict(activation="gelu"),
        dict(gate=x),
        dict(residual=x),
    ):
        with pytest.raises(Usual):
            call(x, weight, bias, **options)
    for mode in (torch.no_grad(), torch.inference_mode(), torch.autocast("cpu", torch.bfloat16), Watch()):
        with mode, pytest.raises(Usual):
            call(x, weight, bias)
    with pytest.raises(Usual):
        torch.func.vmap(lambda row: call(row, weight, bias))(x.unsqueeze(0))
    with trigen.record(), pytest.raises(Usual):
        call(x, weight, bias)
    call(x, weight, bias)


def test_autocast_is_known_by_its_dtype(device, learned, monkeypatch):  # noqa: F811
    (x, weight, bias), _ = leaves_of(device)
    dtypes = {"cuda": torch.bfloat16}
    monkeypatch.setattr(functional, "_autocast_dtype", lambda device_type: dtypes.get(device_type, torch.bfloat16))
    with torch.autocast("cpu", torch.bfloat16):
        learned(x, weight, bias, torch.bfloat16)
        refuse_the_usual_way(monkeypatch)
        tt.triangular_conv1d(x, weight, bias)
        dtypes["cuda"] = torch.float16
        with pytest.raises(Usual):
            tt.triangular_conv1d(x, weight, bias)


def test_float32_is_known_by_what_the_process_allows(device, learned, monkeypatch):  # noqa: F811
    (x, weight, bias), dy = leaves_of(device, dtype=torch.float32)
    before = torch.get_float32_matmul_precision()
    made, high = {}, "tf32" if HAS_TF32 else "simt"
    try:
        for precision in ("highest", "high"):
            torch.set_float32_matmul_precision(precision)
            learned(x, weight, bias)
            torch.autograd.grad(tt.triangular_conv1d(x, weight, bias), (x, weight, bias), dy)
        (calls,) = known._calls.values()
        assert [(call.tf32, call.options[5]) for call in calls] == [(False, "simt"), (True, high)]
        refuse_the_usual_way(monkeypatch)
        for precision in ("highest", "high"):
            torch.set_float32_matmul_precision(precision)
            y = tt.triangular_conv1d(x, weight, bias)
            torch.set_float32_matmul_precision("highest")  # its backward pass keeps what forward took
            made[precision] = y, *torch.autograd.grad(y, (x, weight, bias), dy)
            assert y.grad_fn.call.options[5] == {"highest": "simt", "high": high}[precision]
    finally:
        torch.set_float32_matmul_precision(before)
    for one, two in zip(made["highest"][:3], made["high"][:3]):
        assert torch.equal(one, two) != HAS_TF32  # one of them was rounded to TF32, where there is TF32
        torch.testing.assert_close(one, two, rtol=2e-2, atol=2e-2)


def test_weights_that_change_are_seen(device, learned):  # noqa: F811
    (x, weight, bias), dy = leaves_of(device)
    learned(x, weight, bias)
    one = tt.triangular_conv1d(x, weight, bias).detach().clone()
    with torch.no_grad():
        bias.zero_()
        weight.mul_(2)  # as an optimiser writes
    two = tt.triangular_conv1d(x, weight, bias).detach().clone()
    weight.data.mul_(2)  # which counts no version
    three = tt.triangular_conv1d(x, weight, bias)
    assert not torch.equal(one, two)
    torch.testing.assert_close(three.detach().clone(), 2 * two, rtol=0, atol=0)  # doubling is exact
    with torch.no_grad():
        weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(three, (x, weight, bias), dy)


def test_second_derivatives_single_gradients_and_two_backward_passes(device, learned):  # noqa: F811
    (x, weight, bias), dy = leaves_of(device)
    weight = device.put(torch.nan_to_num(weight.detach())).requires_grad_()
    learned(x, weight, bias)
    y = tt.triangular_conv1d(x, weight, bias)
    first = torch.autograd.grad(y, (x, weight, bias), dy, retain_graph=True)
    second = torch.autograd.grad(y, (x, weight, bias), dy, retain_graph=True)  # the known pair
    for one, two in zip(first, second):
        torch.testing.assert_close(one, two, **TOLERANCE[torch.bfloat16])
    (alone,) = torch.autograd.grad(y, (bias,), dy, retain_graph=True)
    torch.testing.assert_close(alone, first[2], rtol=1e-2, atol=1e-2)
    (dx,) = torch.autograd.grad(y, (x,), dy, create_graph=True)
    (through,) = torch.autograd.grad(dx.float().square().sum(), (weight,))
    double = weight.detach().double().requires_grad_()
    (want,) = torch.autograd.grad((double.squeeze(-1).tril().t() @ dy.double()).square().sum(), (double,))
    torch.testing.assert_close(through.double(), want, rtol=5e-2, atol=5e-1)


def test_forgotten_plans_are_not_known(device, learned, monkeypatch):  # noqa: F811
    (x, weight, bias), dy = leaves_of(device)
    learned(x, weight, bias)
    want = torch.autograd.grad(tt.triangular_conv1d(x, weight, bias), (x, weight, bias), dy)
    y = tt.triangular_conv1d(x, weight, bias)
    (calls,) = known._calls.values()
    assert calls[0].backward
    for one in launch.launches.values():  # a plan that was destroyed is used by nothing
        one.plan.destroy()
    launch.launches.clear()
    monkeypatch.setattr(launch.library, "close_shared_runtime", lambda: None)
    launch.forget_plans()
    assert not known._calls
    for one, two in zip(torch.autograd.grad(y, (x, weight, bias), dy), want):
        torch.testing.assert_close(one, two, **TOLERANCE[torch.bfloat16])


def test_how_much_is_remembered(device, learned, monkeypatch):  # noqa: F811
    (x, weight, bias), _ = leaves_of(device)
    monkeypatch.setattr(guards, "_VARIANTS", 2)
    monkeypatch.setattr(guards, "_SHAPES", 1)
    for given in (x, x.detach(), x.detach()):
        learned(given, weight, bias)
    assert [len(calls) for calls in known._calls.values()] == [2]
    learned(device.put(x.detach()[:1]), weight, bias)
    assert [len(calls) for calls in known._calls.values()] == [1]


def test_a_guard_that_misses_something_is_not_used(monkeypatch):
    monkeypatch.setattr(guards, "_works", None)
    monkeypatch.setattr(guards, "guard", lambda *tensors: lambda *others: True)
    assert not guards.works()
    monkeypatch.setattr(guards, "_works", None)
    monkeypatch.setattr(guards, "guard", lambda *tensors: 1 / 0)
    assert not guards.works()


def test_a_dispatch_mode_leaves_it_open_whether_the_guard_works(monkeypatch):
    monkeypatch.setattr(guards, "_works", None)
    with Watch():
        assert not guards.works()
    assert guards.works()


# ---- operators -----------------------------------------------------------------------------------------------------------


def operators(x, dy, weight, bias, w, row):
    """{name: implementation of a GPU, as the dispatcher calls it, on these tensors}."""
    scan, scan_grad_input, scan_grad_weight = scans._operator(scans._cuda)[:3]
    return {
        "scan": lambda: scan(x, w, row, dy, None, "btd", "gelu", True),
        "scan_grad_input": lambda: scan_grad_input(dy, w),
        "scan_grad_weight": lambda: scan_grad_weight(dy, x, w, True),
        "forward": lambda: cuda.forward(x, weight, bias),
        "forward_pre": lambda: cuda.forward_pre(x, weight, bias, dy, None, 0, "btd", "lower", 0, "silu"),
        "grad_input": lambda: cuda.grad_input(dy, weight),
        "grad_weight": lambda: cuda.grad_weight(dy, x, list(weight.shape), weight.dtype, True),
        "both gradients": lambda: cuda.gradients(dy, x, weight, bias, OPTIONS),
        "grad_epilogue": lambda: cuda.grad_epilogue(dy, x, None, "gelu"),
    }


NAMES = list(operators(*[None] * 6))


@pytest.fixture()
def given(device):  # noqa: F811
    x, dy, weight, _, bias = make(B=2, n=24, D=16, dtype=torch.bfloat16, wdtype=torch.float32)
    w, row = torch.rand(4, 1, 24) / 2, torch.randn(1, 24)
    return [device.put(one) for one in (x, dy, weight, bias, w, row)]


def clones(results):
    return [one.clone() for one in (results if isinstance(results, tuple) else (results,)) if one is not None]


@pytest.mark.parametrize("name", NAMES)
def test_an_operator_that_ran_before_is_found_by_the_guard(device, given, monkeypatch, name):  # noqa: F811
    def usual(*_):
        raise Usual

    first = clones(operators(*given)[name]())
    monkeypatch.setattr(guards, "_key_of", usual)
    monkeypatch.setattr(launch, "make", usual)
    others = [device.put(one) for one in given]
    for tensors in (given, others):
        again = clones(operators(*tensors)[name]())
        assert len(again) == len(first) and all(torch.equal(one, two) for one, two in zip(again, first))
    x, dy, weight, bias, w, row = given
    # Both of each pair change, so that no operator sees a mixture that its checks refuse.
    odd = [device.put(torch.cat([one.flatten()[:1], one.flatten()]))[1:].view(one.shape) for one in (x, dy)]
    for changed in (
        [x[:1], dy[:1]],
        odd,
        [x.half(), dy.half()],
        [torch.cat([one, one], -1)[..., :16] for one in (x, dy)],
    ):
        with pytest.raises(Usual):
            operators(*changed, weight, bias, w, row)[name]()
    x.requires_grad_(), dy.requires_grad_()
    with torch.no_grad(), pytest.raises(Usual):
        operators(*given)[name]()
    x.requires_grad_(False), dy.requires_grad_(False)
    with trigen.record() as seen:
        operators(*given)[name]()
    assert len(seen.problems) == (2 if name == "both gradients" else 1)
    assert all(torch.equal(one, two) for one, two in zip(clones(operators(*given)[name]()), first))


def test_a_tensor_given_twice_is_found_without_the_guard(given):
    x, _, weight, *_ = given
    for _ in range(3):
        cuda.grad_weight(x, x, weight.shape, weight.dtype)
    assert len(launch.launches) == 1 and not launch.launches.known


def test_what_is_made_is_kept_by_the_guard_and_let_go_with_the_plans(monkeypatch):
    made, counted = guards.Made(), []
    tensor = torch.zeros(2, 3)

    def find(tensor, make=lambda: counted.append(1) or len(counted)):
        return made.find(("key",), (tensor,), make)

    assert find(tensor) == find(torch.ones(2, 3)) == 1 and find(torch.zeros(3, 3)) == 2
    assert len(made) == 2 and [len(entries) for entries in made.known.values()] == [2]
    kept = weakref.ref(tensor)
    del tensor
    gc.collect()
    assert kept() is None
    made.clear()
    assert not made and not made.known and find(torch.zeros(2, 3)) == 3

    def forgotten_meanwhile():
        made.clear()
        return "of plans that are destroyed by now"

    find(torch.zeros(5, 3), forgotten_meanwhile)
    assert not made.known
    monkeypatch.setattr(guards, "_VARIANTS", 2)
    for size in range(1, 5):
        find(torch.zeros(size, 3))
    count = len(counted)
    for size in range(1, 5):
        find(torch.zeros(size, 3))
    assert len(counted) == count and [len(entries) for entries in made.known.values()] == [2]


@pytest.mark.parametrize("name", ["grad_input", "grad_weight", "scan"])
def test_an_operator_without_a_gradient_is_dispatched_once(monkeypatch, name):
    """Its kernel of the Autograd key calls the implementation, in plain eager mode and in a compiled model; not where anything else is watching."""
    x, dy, weight, _, _ = make(n=8, D=4, dtype=torch.float32)
    w, direct = torch.rand(4, 1, 8), []
    call = {
        "grad_input": lambda dy: torch.ops.trigen.grad_input(dy, weight),
        "grad_weight": lambda dy: torch.ops.trigen.grad_weight(dy, x, list(weight.shape), weight.dtype)[0],
        "scan": lambda dy: torch.ops.trigen.scan(dy, w)[0],
    }[name]
    want = call(dy)

    def counts(kernels_of):
        return lambda x: (direct.append(1), kernels_of(x))[1]

    for module in (ops, scans):
        monkeypatch.setattr(module, "kernels_of", counts(module.kernels_of))
    compiled, leaf = torch.compile(call, backend="aot_eager", fullgraph=True), dy.clone().requires_grad_()
    with torch.no_grad():
        compiled(dy)
        for run, given in ((call, dy), (call, leaf), (compiled, dy)):
            direct.clear()
            assert torch.equal(run(given), want) and len(direct) == 1
        direct.clear()
        with Watch():
            assert torch.equal(call(dy), want)
        call(dy.as_subclass(Other))
        assert not direct
    assert torch.autograd.grad(call(leaf).square().sum(), leaf)[0].all()
