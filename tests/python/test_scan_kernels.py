"""scan's kernels as PyTorch launches them, on the emulated device: numbers of plain torch, vectors as they are given, what a second call looks up."""

import pytest

torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")

import trigen
import trigen.torch as tt
from scan_inputs import make
from trigen.torch import cuda, guards, launch, scans
from trigen.torch import vectors as vectors_module

TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}


@pytest.fixture()
def device(emulated, monkeypatch):
    emulated.stand_in(monkeypatch)
    launch.launches.clear()
    scans._calls.clear()
    yield emulated
    launch.launches.clear()
    scans._calls.clear()
    assert emulated.reports() == "[]"


CASES = {
    "float32": dict(),
    "float16": dict(dtype=torch.float16),
    "bfloat16, many tokens": dict(dtype=torch.bfloat16, n=300, D=8, decays=(0.8, 1.0)),
    "heads": dict(H=3, n=19, D=8, dtype=torch.float16),
    "bdt": dict(layout="bdt", n=40, D=12, H=2),
    "odd": dict(n=17, D=9, dtype=torch.float16),
    "odd bdt": dict(n=17, D=9, layout="bdt"),
    "decays that vanish": dict(decays=(0.0, 0.0), n=33),
    "one token": dict(B=1, n=1, D=1),
}


@pytest.mark.parametrize("case", CASES)
def test_kernels(device, case):
    options = CASES[case]
    layout = options.get("layout", "btd")
    x, dy, vectors, bias = make(**options)
    w = torch.stack(vectors)
    there = [device.put(one) for one in (x, dy, w, bias, x + 1, x - 1)]

    def close(got, want, scale=1.0):
        error, size = (got.double() - want.double()).norm(), want.double().norm()
        assert error <= TOLERANCE[x.dtype] * scale * size, (error / size, case)

    plain_y, _ = scans._plain.run(x, w, bias, None, None, layout, "none", False)
    with trigen.record() as seen:
        y, none = scans._cuda.run(there[0], there[2], there[3], None, None, layout, "none", False)
        close(y, plain_y)
        y, pre = scans._cuda.run(there[0], there[2], there[3], there[4], there[5], layout, "gelu", True)
        dx = scans._cuda.grad_input(there[1], there[2], layout)
        dw, db = scans._cuda.grad_weight(there[1], there[0], there[2], True, layout)
        dw_alone, empty = scans._cuda.grad_weight(there[1], there[0], there[2], False, layout)
        both = scans._cuda.backward(there[1], there[0], there[2], True, layout)
        again = scans._cuda.backward(there[1], there[0], there[2], True, layout)
    assert none is None and empty.numel() == 0 and torch.equal(dw_alone, dw)
    with trigen.record() as plain_ones:
        scans._plain.run(there[0], there[2], there[3], None, None, layout, "none", False)
        want_y, want_pre = scans._plain.run(there[0], there[2], there[3], there[4], there[5], layout, "gelu", True)
        want_dx = scans._plain.grad_input(there[1], there[2], layout)
        want_dw, want_db = scans._plain.grad_weight(there[1], there[0], there[2], True, layout)
        scans._plain.grad_weight(there[1], there[0], there[2], False, layout)
        for _ in range(2):
            scans._plain.backward(there[1], there[0], there[2], True, layout)
    close(y, want_y)
    close(pre, want_pre)
    close(dx, want_dx)
    close(dw, want_dw, 4)
    close(db, want_db, 4)
    for got, want, scale in zip(both, (want_dx, want_dw, want_db), (1, 4, 4)):
        close(got, want, scale)
    assert all(torch.equal(one, two) for one, two in zip(both, again))
    assert dw[2, :, 0].count_nonzero() == 0
    # What a CPU records is what the device was asked, and what its plans say.
    assert seen.counts == plain_ones.counts and len(seen.problems) == 6
    assert sorted(info.problem for info in tt.plans()) == sorted(seen.problems)


def test_a_second_call_is_a_lookup_and_what_cannot_be_read_is_copied(device):
    x, dy, vectors, bias = make(H=2, n=12, D=8)
    w = torch.stack(vectors)
    there = [
        device.put(one)
        for one in (x.repeat_interleave(2, -1)[..., ::2], dy.repeat_interleave(2, -1)[..., ::2], w.mT.contiguous().mT)
    ]
    assert not any(one.is_contiguous() for one in there)
    for _ in range(2):
        y, _ = scans._cuda.run(there[0], there[2], None, None, None, "btd", "none", False)
        torch.testing.assert_close(y.clone(), scans._plain.run(x, w, None, None, None, "btd", "none", False)[0])
        dw, _ = scans._cuda.grad_weight(there[1], there[0], there[2], False, "btd")
        torch.testing.assert_close(
            dw.clone(), scans._plain.grad_weight(dy, x, w, False, "btd")[0], rtol=1e-4, atol=1e-4
        )
        both = scans._cuda.backward(there[1], there[0], there[2], False, "btd")
        same(both, scans._plain.backward(dy, x, w, False, "btd"), rtol=1e-4, atol=1e-4)
        assert len(tt.plans()) == 3


@pytest.fixture()
def kernels(device, monkeypatch):
    """CPU tensors in the device's memory take the way of a GPU's."""
    monkeypatch.setattr(scans, "kernels_of", lambda tensor: scans._cuda)
    return device


class Unknown(Exception):
    """The call is not known."""


def refuse_what_is_unknown(monkeypatch):
    """Neither vectors are looked at nor launches looked up."""

    def refuse(*_, **__):
        raise Unknown

    for module, name in ((vectors_module, "placed"), (scans, "_launch")):
        monkeypatch.setattr(module, name, refuse)


def on(device, *tensors):
    return [device.put(one).requires_grad_() for one in tensors]


def same(got, want, **tolerance):
    for one, two in zip(got, want):
        torch.testing.assert_close(one.clone(), two, **tolerance)


NEAR = dict(rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(
    not guards.works(), reason="[SKIP] this PyTorch's TensorGuards is another one: nothing is ever known"
)
@pytest.mark.parametrize("case", ["vectors", "column", "one head", "residual", "silu and gate"])
def test_a_step_that_ran_before_looks_nothing_up_and_has_the_numbers_of_plain_torch(kernels, monkeypatch, case):
    x, dy, vectors, bias = make(H=2, n=12, D=8)
    raw = torch.tensor([[0.95], [0.8]])
    tensors = {
        "vectors": (x, *vectors, bias),
        "column": (x, vectors[1], raw, bias),
        "one head": (x, vectors[1][:1], raw[0], bias[0]),
        "residual": (x, vectors[0], vectors[1], x + 1),
        "silu and gate": (x, *vectors, bias, x + 1),
    }[case]
    call = {
        "vectors": tt.scan,
        "column": lambda x, v, d, b: tt.scan(x, target=v, decay=d, bias=b, decay_range=(0.9, 1), decay_constant=2.0),
        "one head": lambda x, v, d, b: tt.scan(x, target=v, decay=d, bias=b, decay_range=(0.9, 1)),
        "residual": lambda x, s, t, r: tt.scan(x, s, t, residual=r),
        "silu and gate": lambda *given: tt.scan(*given[:6], gate=given[6], activation="silu"),
    }[case]

    def step(leaves, dy):
        y = call(*leaves)
        return y, *torch.autograd.grad(y, leaves, dy)

    given, dy_there = on(kernels, *tensors), kernels.put(dy)
    first = [one.clone() for one in step(given, dy_there)]
    assert sorted(info.problem.split(",")[0] for info in tt.plans())[-2:] == ["scan", "scan_grad_weight"]
    assert "grad_input" in tt.plans()[-1].problem  # dx is made beside the vectors' gradients
    if case != "silu and gate":
        refuse_what_is_unknown(monkeypatch)
        again = step(given, dy_there)
        assert all(torch.equal(one, two) for one, two in zip(first, again))
        with torch.no_grad(), pytest.raises(Unknown):  # another call: nothing to record
            call(*given)
    else:  # grad_epilogue is looked up
        same(step(given, dy_there), first, rtol=0, atol=0)
    monkeypatch.undo()
    scans._calls.clear()  # as CPU tensors both are known by the same
    same(first, step([one.clone().requires_grad_() for one in tensors], dy), **NEAR)


H, N = 2, 12
WAYS = {  # of giving vectors of 2 heads and 12 tokens: the arguments' shapes, and scan's other ones
    "nothing": ({}, {}),
    "one of each head": (dict(decay=(H,), target=(H, N)), {}),
    "one of each head, in columns": (dict(source=(H, 1), decay=(H, 1), diagonal=(H, 1), target=(N,)), {}),
    "one of each token": (dict(source=(N,), target=(1, N), decay=(N,), diagonal=(N,), bias=(N,)), {}),
    "numbers": (dict(source=(), target=(1,), decay=(1, 1), bias=(H, N)), {}),
    "a derived diagonal": (dict(source=(H, N), target=(N,), decay=(H, N)), {}),
    "a range": (dict(source=(H, N), target=(H, N), decay=(H, N)), dict(decay_range=(0.9, 0.97))),
    "a range for one of each head": (dict(target=(H, N), decay=(H, 1), bias=(H, N)), dict(decay_range=(0.9, 0.97))),
    "a range and a root": (dict(source=(N,), decay=(H,), bias=(H, 1)), dict(decay_range=(0.9, 0.97), decay_constant=3)),
    "no upper bound": (dict(target=(H, N), decay=(H, N)), dict(decay_range=(0.95, float("inf")))),
    "a range without a decay": (dict(target=(H, N)), dict(decay_range=(0.5, 0.9))),
    "more tokens than x": (dict(source=(H, 20), target=(1, 20), decay=(20,), diagonal=(H, 20), bias=(H, 20)), {}),
    "other dtypes": (
        dict(source=(H, N), target=(N,), decay=(H, 1)),
        dict(dtype=torch.float64, decay_range=(0.9, 0.97)),
    ),
    "rows apart": (dict(source=(H, N), target=(H, N), decay=(H, N), diagonal=(H, N)), dict(apart=True)),
}


@pytest.mark.parametrize("layout", ["btd", "bdt"])
@pytest.mark.parametrize("way", WAYS)
def test_kernels_take_vectors_as_they_are_given(kernels, monkeypatch, layout, way):
    shapes, options = WAYS[way]
    x, dy, _, _ = make(H=H, n=N, D=8, layout=layout)
    generator = torch.Generator().manual_seed(3)
    dtype, apart = options.get("dtype", torch.float32), options.get("apart", False)
    options = {name: value for name, value in options.items() if name.startswith("decay")}
    leaves = {"x": x}
    for name, shape in shapes.items():
        value = torch.randn(shape, generator=generator)
        if name == "decay":  # on both sides of a range, and at its bounds
            value = 0.85 + 0.15 * torch.rand(shape, generator=generator)
            value.view(-1)[1::5] = options.get("decay_range", (0.9, 0.97))[0]
            value.view(-1)[2::5] = 0.97
        leaves[name] = value.to(dtype).repeat_interleave(3, -1)[..., ::3].mT if apart else value.to(dtype)
        leaves[name] = leaves[name].mT if apart else leaves[name]

    def step(leaves, dy):
        y = tt.scan(**leaves, layout=layout, **options)
        return y, *torch.autograd.grad(y, list(leaves.values()), dy)

    there = {name: kernels.put(one).requires_grad_() for name, one in leaves.items()}
    if dtype is torch.float64:  # a cast is torch's, and its result no memory of the emulated device's
        there = {name: one if name == "x" else leaves[name].requires_grad_() for name, one in there.items()}
    dy_there = kernels.put(dy)
    first = [one.clone() for one in step(there, dy_there)]
    assert {info.problem.split(",")[0] for info in tt.plans()} >= {"scan", "scan_grad_weight"} - (
        set() if shapes else {"scan_grad_weight"}
    )
    for _ in range(2):
        same(step(there, dy_there), first, rtol=0, atol=0)
    monkeypatch.undo()
    plain = {name: one.detach().clone().requires_grad_() for name, one in leaves.items()}
    w = vectors_module.placed(x, tuple(plain.get(name) for name in vectors_module.NAMES), layout, *options.values())
    given = [plain.get(name) for name in vectors_module.NAMES]
    y = scans._differentiable.run(plain["x"], w.make(given), w.bias(given), None, None, layout, "none", False)[0]
    same(first, (y, *torch.autograd.grad(y, list(plain.values()), dy)), **NEAR)


def test_vectors_that_hooks_put_elsewhere_are_read_as_they_lie(kernels):
    x, dy, (source, target, decay, _), _ = make(H=2, n=12, D=8)
    tall = kernels.put(decay.mT.contiguous()).requires_grad_()  # [n, H], of which the call sees a transposed view
    given = on(kernels, x, source, target)

    def step():
        y = tt.scan(*given, tall.mT)
        return torch.autograd.grad(y, (*given, tall), kernels.put(dy))

    want = [one.clone() for one in step()]
    same(step(), want, rtol=0, atol=0)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda one: one.detach().clone(), lambda one: kernels.put(one.contiguous())
    ):
        same(step(), want, rtol=0, atol=0)


@pytest.mark.parametrize(
    "needed", [("x",), ("target",), ("decay",), ("bias",), ("x", "bias"), ("target", "bias"), ("x", "decay")]
)
@pytest.mark.parametrize("activation", [None, "silu"])
def test_some_gradients_of_vectors_as_they_are_given(kernels, needed, activation):
    x, dy, (_, target, _, _), bias = make(H=2, n=12, D=8)
    leaves = dict(x=x, target=target, decay=torch.tensor([[0.95], [0.8]]), bias=bias)

    def step(leaves, dy):
        y = tt.scan(**leaves, decay_range=(0.9, 1), activation=activation)
        return torch.autograd.grad(y, [leaves[name] for name in needed], dy)

    there = {name: kernels.put(one).requires_grad_(name in needed) for name, one in leaves.items()}
    first = [one.clone() for one in step(there, kernels.put(dy))]
    same(step(there, kernels.put(dy)), first, rtol=0, atol=0)
    plain = {name: one.clone().requires_grad_(name in needed) for name, one in leaves.items()}
    decay = plain["decay"].clip(0.9, 1).expand(2, 12)
    w = torch.stack([torch.ones(2, 12), plain["target"], decay, plain["target"]])
    y = scans._differentiable.run(plain["x"], w, plain["bias"], None, None, "btd", "none", False)[0]
    y = torch.nn.functional.silu(y) if activation else y
    same(first, torch.autograd.grad(y, [plain[name] for name in needed], dy), **NEAR)


def test_one_vector_in_two_places(kernels):
    x, dy, (vector, _, decay, _), _ = make(H=2, n=12, D=8)
    given, dy_there = on(kernels, x, vector, decay), kernels.put(dy)
    plain = [one.detach().clone().requires_grad_() for one in (x, vector, decay)]
    w = torch.stack([plain[1], plain[1], plain[2], plain[1] * plain[1]])
    want = scans._differentiable.run(plain[0], w, None, None, None, "btd", "none", False)[0]
    for _ in range(2):
        y = tt.scan(given[0], given[1], given[1], given[2])
        same(
            (y, *torch.autograd.grad(y, given, dy_there)),
            (want, *torch.autograd.grad(want, plain, dy, retain_graph=True)),
            **NEAR,
        )


def test_a_decay_that_is_no_number_stays_one(kernels):
    x, dy, (_, target, decay, _), _ = make(H=2, n=12, D=8)
    decay[1, 5] = float("nan")
    given = on(kernels, x, target, decay)
    y = tt.scan(given[0], target=given[1], decay=given[2], decay_range=(0.9, 1))
    of_heads = y.detach().clone().unflatten(2, (2, -1))
    assert (
        of_heads[:, :, 0].isfinite().all() and of_heads[:, :5, 1].isfinite().all() and of_heads[:, 5:, 1].isnan().all()
    )
    dx, _, _ = torch.autograd.grad(y, given, kernels.put(dy))
    assert dx.unflatten(2, (2, -1))[:, :, 0].isfinite().all()


@pytest.mark.skipif(
    not guards.works(), reason="[SKIP] this PyTorch's TensorGuards is another one: nothing is ever known"
)
def test_what_differs_is_not_known(monkeypatch):
    """On a CPU, where calls are known as well."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    class Other(torch.Tensor):
        pass

    scans._calls.clear()
    x, _, (source, target, decay, _), bias = make(H=2, n=24, D=8)
    x.requires_grad_()

    def call(x=x, source=source, decay=decay, bias=bias, **options):
        return tt.scan(x, source, target, decay, bias=bias, **options)

    call()
    monkeypatch.setattr(vectors_module, "placed", lambda *_: (_ for _ in ()).throw(Unknown))
    call()
    for given in (
        dict(x=x[:1]),
        dict(x=x[:, :23]),
        dict(x=x.half()),
        dict(x=x.detach()),
        dict(x=torch.randn(2, 24, 32)[..., ::2].requires_grad_()),
        dict(x=x.as_subclass(Other)),
        dict(source=source[:1]),
        dict(source=source.double()),
        dict(source=source.clone().requires_grad_()),
        dict(source=source.as_subclass(Other)),
        dict(source=0.5),
        dict(decay=decay[:, :1]),
        dict(decay=None),
        dict(bias=None),
        dict(bias=bias[0]),
        dict(gate=torch.ones_like(x)),
        dict(residual=torch.ones_like(x)),
        dict(activation="gelu"),
        dict(layout="bdt"),
        dict(decay_range=(0.9, 1.0)),
        dict(decay_constant=2.0),
    ):
        with pytest.raises(Unknown):
            call(**given)
    for mode in (torch.no_grad(), torch.inference_mode(), torch.autocast("cpu", torch.bfloat16), Watch()):
        with mode, pytest.raises(Unknown):
            call()
    with pytest.raises(Unknown):
        torch.vmap(lambda row: call(x=row))(x.unsqueeze(0))
    with pytest.raises(Unknown):
        torch.func.grad(lambda v: call(source=v).sum())(source)
    call()


@pytest.mark.skipif(
    not guards.works(), reason="[SKIP] this PyTorch's TensorGuards is another one: nothing is ever known"
)
def test_weights_that_change_are_seen_and_forgotten_plans_are_not_run(kernels):
    x, dy, vectors, bias = make(H=2, n=12, D=8)
    given, dy = on(kernels, x, *vectors, bias), kernels.put(dy)
    one = tt.scan(*given).detach().clone()
    with torch.no_grad():
        given[2].mul_(2)  # as an optimiser writes
    given[4].data.mul_(2)  # which counts no version
    y = tt.scan(*given)
    twins = [leaf.detach().clone().requires_grad_() for leaf in given]
    want = scans._differentiable.run(twins[0], torch.stack(twins[1:5]), twins[5], None, None, "btd", "none", False)[0]
    torch.testing.assert_close(y.detach().clone(), want, **NEAR)
    assert not torch.equal(y, one)
    torch.autograd.grad(y, given, dy, retain_graph=True)
    (call,) = (call for calls in scans._calls.values() for call in calls)
    assert call.launch is not None and call.backward
    launch.generation += 1  # as forget_plans does, which destroys them
    for made in launch.launches.values():
        made.plan.destroy()
    launch.launches.clear()
    same(torch.autograd.grad(y, given, dy), torch.autograd.grad(want, twins, dy), **NEAR)
    same([tt.scan(*given)], [want], **NEAR)


def test_saved_tensors_are_read_once_and_checkpoints_have_the_same_gradients(kernels):
    x, dy, vectors, bias = make(H=2, n=12, D=8)
    given, dy = on(kernels, x, *vectors, bias), kernels.put(dy)
    want = torch.autograd.grad(tt.scan(*given, activation="silu"), given, dy)
    read = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: (read.append(1), tensor)[1]):
        y = tt.scan(*given)
    torch.autograd.grad(y, given, dy)
    assert len(read) == 6  # x and the five vectors
    y = torch.utils.checkpoint.checkpoint(
        lambda *leaves: tt.scan(*leaves, activation="silu"), *given, use_reentrant=False
    )
    same(torch.autograd.grad(y, given, dy), want, rtol=0, atol=0)


@pytest.mark.skipif(
    not guards.works(), reason="[SKIP] this PyTorch's TensorGuards is another one: nothing is ever known"
)
def test_a_step_is_few_operations(monkeypatch, repository):
    """PyTorch's kernels in a step that ran before, beside trigen's two, and all that its dispatcher sees. No more than these: each one costs as
    much host time as a launch of trigen's."""
    monkeypatch.syspath_prepend(repository / "bench")
    import host_cost

    class NoPlan:
        handle, workspace_size = 1, 0

    runs = []
    monkeypatch.setattr(launch, "plan_of", lambda text, device: NoPlan)
    monkeypatch.setattr(launch, "_run", lambda *_: runs.append(1) or 0)
    monkeypatch.setattr(launch, "raw_stream", lambda index: 0)
    monkeypatch.setattr(scans, "kernels_of", lambda tensor: scans._cuda)
    x, dy, vectors, bias = make(H=2, n=12, D=8)
    leaves = [one.requires_grad_() for one in (x, *vectors, bias)]
    mixer = tt.StructuredMixer(12, "column", decay="shared")
    both = tt.StructuredMixer(12, "both", decay="each")

    def step_of(call, *parameters):
        return lambda: torch.autograd.grad(call(x), (x, *parameters), dy)

    # What they are: none; a sum over tokens; that twice, with unbind's derivative and two gradients of x added up.
    for call, launches, most in (
        (step_of(lambda x: tt.scan(x, *leaves[1:]), *leaves[1:]), 2, (16, 0)),
        (step_of(mixer, *mixer.parameters()), 2, (15, 1)),
        (step_of(both, *both.parameters()), 4, (51, 6)),
    ):
        call()
        runs.clear()
        operations, of_pytorch = host_cost.count(call)
        assert len(runs) == 2 * launches  # count calls it twice
        assert operations <= most[0] and of_pytorch <= most[1], (operations, of_pytorch)
    scans._calls.clear()
    launch.launches.clear()


def test_the_launches_are_kept_beside_the_others(device):
    x, _, vectors, _ = make()
    scans._cuda.run(device.put(x), device.put(torch.stack(vectors)), None, None, None, "btd", "none", False)
    assert cuda._launches is launch.launches and len(launch.launches) == 1
