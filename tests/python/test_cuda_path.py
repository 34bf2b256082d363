"""The CUDA implementation of the operators on the emulated device: keys, strides, alignment, plans and argument blocks are those of a GPU;
memory comes from the emulated driver, which checks every access. Compared with the plain implementation."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")

import trigen
import trigen.torch as tt
from emulated import ALL_CASES, HAS_TF32, TARGET
from trigen.torch import cuda, known, launch, ops, plain, precision

TOLERANCE = {
    torch.float32: dict(rtol=1e-5, atol=1e-5),
    torch.float16: dict(rtol=4e-3, atol=4e-3),
    torch.bfloat16: dict(rtol=3e-2, atol=3e-2),
}


@pytest.fixture()
def device(emulated, monkeypatch):
    """The emulated device behind launch.py: its allocator instead of PyTorch's, the default stream, its target's TF32."""
    emulated.stand_in(monkeypatch)
    monkeypatch.setattr(precision, "has_tf32", lambda index: HAS_TF32)
    forget()
    yield emulated
    forget()


@pytest.fixture(scope="module")
def generic(emulated_device, library, tmp_path_factory):
    """A runtime of kernels for all sizes: few are compiled for many texts."""
    cache = tmp_path_factory.mktemp("generic") / "cache.db"
    return library.Runtime(driver=f"emulated:{TARGET}", layers=[cache], miss="generic")


def forget():
    """Launches are of the emulated device and of one test."""
    launch.launches.clear()
    cuda._both.clear()


def make(B=2, H=1, n=24, D=16, K=1, T=None, layout="btd", dtype=torch.float16, wdtype=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    T = T or n
    shape = (B, n, H * D) if layout == "btd" else (B, H * D, n)
    head = (H,) if H > 1 else ()
    x, dy = (torch.randn(shape, generator=generator).to(dtype) for _ in range(2))
    weight = (torch.randn(*head, T, T, K, generator=generator) / (n * K) ** 0.5).to(wdtype or dtype)
    bias = torch.randn(*head, T, generator=generator).to(wdtype or dtype)
    outside = torch.ones(T, T).triu(1).bool()
    poisoned = weight.clone()
    poisoned[..., outside, :] = float("nan")
    return x, dy, weight, poisoned, bias


CASES = {
    "plain": dict(),
    "float32": dict(dtype=torch.float32, n=17, D=9),
    "bfloat16 with float32 weights": dict(dtype=torch.bfloat16, wdtype=torch.float32),
    "heads and taps": dict(H=2, K=3, n=19, D=8),
    "bdt": dict(layout="bdt", n=20, D=12, K=2),
    "prefix": dict(n=12, T=20, H=2),
    "odd prefix of an aligned weight": dict(n=13, T=24, K=1, D=16),
    "odd prefix with taps": dict(n=11, T=16, K=3, D=24, dtype=torch.float32),
    "one token": dict(B=1, n=1, D=1, T=1),
}


@pytest.mark.parametrize("case", CASES)
def test_three_operators(device, case):
    options = CASES[case]
    layout, taps = options.get("layout", "btd"), options.get("K", 1)
    x, dy, weight, poisoned, bias = make(**options)
    rest = ((taps - 1) // 2, layout)
    there = [device.put(tensor) for tensor in (x, dy, poisoned, bias)]
    tolerance = TOLERANCE[x.dtype]

    y = cuda.forward(there[0], there[2], there[3], None, None, *rest)
    torch.testing.assert_close(y.clone(), plain.forward(x, weight, bias, None, None, *rest), **tolerance)
    dx = cuda.grad_input(there[1], there[2], None, *rest)
    torch.testing.assert_close(dx.clone(), plain.grad_input(dy, weight, None, *rest), **tolerance)
    dw, db = cuda.grad_weight(there[1], there[0], weight.shape, weight.dtype, True, *rest)
    want_w, want_b = plain.grad_weight(dy, x, weight.shape, weight.dtype, True, *rest)
    scale = dict(rtol=tolerance["rtol"], atol=tolerance["atol"] * 8)
    torch.testing.assert_close(dw.clone(), want_w, **scale)
    torch.testing.assert_close(db.clone(), want_b, **scale)
    T = weight.shape[-2]
    outside = torch.ones(T, T).triu(1).bool()
    assert dw.reshape(-1, T, T, taps)[:, outside].count_nonzero() == 0  # exactly
    infos = tt.plans()
    assert [info.problem.split(",")[0] for info in infos] == ["forward", "grad_input", "grad_weight"]
    assert all(info.target == TARGET and info.provenance == "predicted" for info in infos)


RECORDED = {
    **CASES,
    "prefix of a better aligned weight": dict(n=5, T=8, dtype=torch.bfloat16, wdtype=torch.float32),
    "nothing inside": dict(n=6, diag=-6),
    "wide slices": dict(n=12, D=12, view=lambda x: torch.cat([x, x], -1)[..., : x.shape[-1]]),
    "every second feature": dict(view=lambda x: x.repeat_interleave(2, -1)[..., ::2]),
    "odd addresses": dict(view=lambda x: torch.cat([x[:1], x]).flatten()[x[0].numel() - 1 : -1].view(x.shape)),
    "tf32": dict(dtype=torch.float32, precision="high"),
    "a transposed weight": dict(n=16, weight=lambda w: w.transpose(0, 1).contiguous().transpose(0, 1)),
    "diagonal": dict(n=6, diag=9),
}


@pytest.mark.parametrize("case", RECORDED if ALL_CASES else ["plain", "odd addresses", "tf32"])
def test_a_cpu_records_what_a_gpu_does(device, library, generic, monkeypatch, case):
    """Alignments, precision, diagonals, epilogues: the same texts from the plain implementation and from the CUDA one's plans."""
    monkeypatch.setattr(library, "_shared", generic)
    options = dict(RECORDED[case])
    view, change, diag = options.pop("view", lambda x: x), options.pop("weight", lambda w: w), options.pop("diag", 0)
    precision_asked, before = options.pop("precision", "highest"), torch.get_float32_matmul_precision()
    layout, taps = options.get("layout", "btd"), options.get("K", 1)
    x, dy, weight, _, bias = make(**options)
    x, dy, gate, weight, bias = (
        device.put(tensor) for tensor in (view(x), view(dy), view(x + 1), change(weight), bias)
    )
    pad = (taps - 1) // 2
    torch.set_float32_matmul_precision(precision_asked)
    seen = []
    try:
        for forward, forward_pre, grad_input, grad_weight in (
            (cuda.forward, cuda.forward_pre, cuda.grad_input, cuda.grad_weight),
            (plain.forward, plain.forward_pre, plain.grad_input, plain.grad_weight),
        ):
            with trigen.record() as recorder:
                forward(x, weight, bias, None, None, pad, layout, "lower", diag)
                forward(x, weight, None, gate, x, pad, layout, "lower", diag, "silu")
                forward_pre(x, weight, bias, gate, None, pad, layout, "lower", diag, "gelu")
                forward_pre(x, weight, bias, None, x, pad, layout, "lower", diag)
                grad_input(dy, weight, x, pad, layout, "lower", diag)
                grad_weight(dy, x, weight.shape, weight.dtype, True, pad, layout, "lower", diag)
                grad_weight(dy, x, weight.shape, weight.dtype, False, pad, layout, "lower", diag)
            seen.append(recorder.counts)
            assert (
                all("math=tf32" in text for text in recorder.problems) == (precision_asked == "high" and HAS_TF32)
                or case == "nothing inside"
            )
    finally:
        torch.set_float32_matmul_precision(before)
    assert seen[0] == seen[1] and (len(seen[0]) == 6 or case == "nothing inside" and not seen[0]), (seen[0], seen[1])


MODULES = {
    "TriangularConv1d": lambda: (tt.TriangularConv1d(12, 3, heads=2, activation="gelu"), torch.randn(2, 12, 8), {}),
    "with a residual": lambda: (tt.TriangularConv1d(12), torch.randn(2, 12, 8), {"residual": torch.randn(2, 12, 8)}),
    "a prefix": lambda: (tt.TriangularConv1d(12, heads=2), torch.randn(2, 7, 8), {}),
    "TriangularLinear": lambda: (tt.TriangularLinear(12), torch.randn(2, 5, 12), {}),
    "TriangularLinear, other ranks and a prefix": lambda: (
        tt.TriangularLinear(12, activation="silu"),
        torch.randn(2, 3, 2, 9),
        {},
    ),
    "CausalSpatialGatingUnit": lambda: (tt.CausalSpatialGatingUnit(16, 12), torch.randn(2, 12, 16), {}),
    "CausalSpatialGatingUnit with heads": lambda: (
        tt.CausalSpatialGatingUnit(16, 12, heads=2, activation="gelu", init_eps=3.0),
        torch.randn(2, 9, 16),
        {},
    ),
    "toeplitz": lambda: (tt.TriangularConv1d(12, form="toeplitz", activation="gelu"), torch.randn(2, 12, 8), {}),
    "toeplitz, heads in the batch, a prefix": lambda: (
        tt.TriangularConv1d(12, form="toeplitz", heads=2, layout="bdt", heads_in_batch=True),
        torch.randn(4, 5, 9),
        {},
    ),
    "band": lambda: (
        tt.TriangularConv1d(12, form="band", width=5, heads=2),
        torch.randn(2, 12, 8),
        {"residual": torch.randn(2, 12, 8)},
    ),
    "band, fewer tokens than it has": lambda: (tt.TriangularConv1d(12, form="band", width=7), torch.randn(2, 4, 8), {}),
    "no bias, no batch": lambda: (tt.TriangularConv1d(12, bias=False, padding="causal"), torch.randn(12, 8), {}),
}


@pytest.mark.parametrize(
    "name", MODULES if ALL_CASES else ["TriangularConv1d", "CausalSpatialGatingUnit with heads", "band"]
)
def test_modules_run_with_the_weights_they_have(device, monkeypatch, name):
    """Every module's own shapes of weight and bias, forward and gradients, through the CUDA implementation."""
    torch.manual_seed(1)
    module, x, given = MODULES[name]()
    x.requires_grad_()

    def everything():
        y = module(x, **given)
        with torch.no_grad():
            again = module(x, **given)
        dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(2))
        return y, again, *torch.autograd.grad(y, (x, *module.parameters()), dy)

    want, ran = everything(), []

    def there(tensors):
        return [device.put(tensor.detach()) if isinstance(tensor, torch.Tensor) else tensor for tensor in tensors]

    def through(kernel):
        def run(*arguments):
            ran.append(kernel.__name__)
            got = kernel(*there(arguments))
            return tuple(None if one is None else one.clone() for one in got) if isinstance(got, tuple) else got.clone()

        return run

    kernels = SimpleNamespace(
        **{name: through(getattr(cuda, name)) for name in ("run_forward", "grad_input", "grad_weight")},
        grad_epilogue=plain.grad_epilogue,
    )
    monkeypatch.setattr(ops, "kernels_of", lambda x: kernels)
    for one, two in zip(everything(), want):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)
    assert ran == ["run_forward", "run_forward", "grad_input", "grad_weight"] and len(tt.plans()) >= 3


@pytest.mark.parametrize("math", ["default", "simt", "f16x3", "tf32"])
@pytest.mark.parametrize("highest", [True, False])
def test_float32_is_multiplied_as_asked(device, math, highest):
    """A [T, T] matrix of float32 weights: what the problem says, and the accuracy that goes with it."""
    x, dy, weight, poisoned, bias = make(dtype=torch.float32, n=72, D=40, B=1)
    weight, poisoned = weight[..., 0], poisoned[..., 0]
    there = [device.put(tensor) for tensor in (x, dy, poisoned, bias)]
    before = torch.get_float32_matmul_precision()
    given = (0, "btd", "lower", 0, "none", math, "dense")
    if math == "tf32" and not HAS_TF32:  # by name: an error that says why, not other numbers than asked for
        with pytest.raises(trigen.Unsupported, match="math=tf32"):
            cuda.forward(there[0], there[2], there[3], None, None, *given)
        return
    torch.set_float32_matmul_precision("highest" if highest else "high")
    try:
        y = cuda.forward(there[0], there[2], there[3], None, None, *given)
        dx, dw, db = cuda.gradients(there[1], there[0], there[2], there[3], given)
    finally:
        torch.set_float32_matmul_precision(before)
    rounded = HAS_TF32 and (math == "tf32" or (math == "default" and not highest))
    said = "math=tf32" if rounded else "math=f16x3" if math == "f16x3" else "pad=0"
    assert all(said in info.problem and ("math" in info.problem) == ("math" in said) for info in tt.plans())
    exact = [tensor.double() for tensor in (x, dy, weight, bias)]
    want = (
        plain.forward(exact[0], exact[2], exact[3], None, None, 0, "btd"),
        plain.grad_input(exact[1], exact[2], None, 0, "btd"),
        *plain.grad_weight(exact[1], exact[0], weight.shape, torch.float64, True, 0, "btd"),
    )
    errors = [
        float((got.double() - one).abs().max() / one.square().mean().sqrt()) for got, one in zip((y, dx, dw, db), want)
    ]
    assert all(error < (5e-3 if rounded else 2e-6) for error in errors), errors
    assert not rounded or all(error > 1e-5 for error in errors[:3]), errors  # tf32 has 11 bits


@pytest.mark.parametrize("case", CASES)
def test_both_gradients_by_one_lookup(device, case):
    """The backward pass of eager mode: the first call makes the launches, the second one finds them together."""
    options = CASES[case]
    layout, taps = options.get("layout", "btd"), options.get("K", 1)
    x, dy, weight, poisoned, bias = make(**options)
    given = ((taps - 1) // 2, layout, "lower", 0, "none", "default", "dense")
    there = [device.put(tensor) for tensor in (dy, x, poisoned, bias)]
    want = (
        plain.grad_input(dy, weight, None, *given[:2]),
        *plain.grad_weight(dy, x, weight.shape, weight.dtype, True, *given[:2]),
    )
    first, second = cuda.gradients(*there, given), cuda.gradients(*there, given)
    (together,) = cuda._both.values()
    assert isinstance(together, launch.Pair) != (
        x.shape[1 if layout == "btd" else 2] < weight.shape[-2]
    )  # prefixes go their own way
    tolerance = dict(rtol=TOLERANCE[x.dtype]["rtol"], atol=TOLERANCE[x.dtype]["atol"] * 8)
    for got in (first, second):
        for one, two in zip(got, want):
            assert one.is_contiguous() and one.dtype == two.dtype
            torch.testing.assert_close(one.clone(), two, **tolerance)
    for one, two in zip(first, second):
        assert torch.equal(one, two)  # the same bits
    without = cuda.gradients(*there[:3], None, given)
    assert without[2] is None and torch.equal(without[1], first[1])
    strided = device.put(torch.stack([bias, bias], -1))[..., 0]
    assert torch.equal(cuda.gradients(*there[:3], strided, given)[2], first[2])
    with trigen.record() as seen:
        cuda.gradients(*there, given)
    assert [text.split(",")[0] for text in seen.problems] == ["grad_input", "grad_weight"]


def test_gradients_of_other_strides_are_copied_once(device, monkeypatch):
    x, dy, weight, poisoned, bias = make(K=2)
    given = (0, "btd", "lower", 0, "none", "default", "dense")
    there = [device.put(tensor) for tensor in (dy, x, poisoned, bias)]
    want = plain.grad_input(dy, weight), *plain.grad_weight(dy, x, weight.shape, weight.dtype, True)
    copied, contiguous = [], launch.contiguous
    monkeypatch.setattr(launch, "contiguous", lambda tensor: copied.append(tensor.shape) or contiguous(tensor))
    for position in range(3):
        other = device.put(there[position].transpose(0, 1).transpose(1, 2).contiguous()).transpose(1, 2).transpose(0, 1)
        assert not other.is_contiguous() and torch.equal(other.isnan(), there[position].isnan())
        arguments = [*there[:position], other, *there[position + 1 :]]
        for _ in range(2):
            copied.clear()
            for one, two in zip(cuda.gradients(*arguments, given), want):
                torch.testing.assert_close(one.clone(), two, rtol=4e-3, atol=3e-2)
            assert copied == [other.shape]


@pytest.mark.parametrize("activation", ["gelu", "silu"])
def test_epilogues_in_one_kernel(device, activation):
    x, gate, weight, poisoned, bias = make(n=16, D=16)
    residual = torch.randn_like(x)
    there = [device.put(tensor) for tensor in (x, poisoned, bias, gate, residual)]
    y, pre = cuda.forward_pre(*there, 0, activation=activation)
    want, want_pre = plain.forward_pre(x, weight, bias, gate, residual, 0, activation=activation)
    torch.testing.assert_close(y.clone(), want, **TOLERANCE[x.dtype])
    torch.testing.assert_close(pre.clone(), want_pre, **TOLERANCE[x.dtype])
    assert tt.plans()[0].problem.endswith(f"epilogue=bias+{activation}+pre+gate+residual")


SHAPES = {"rows of whole vectors": (2, 16, 24), "flat": (3, 5, 7), "one element": (1, 1, 1), "a long row": (1, 3, 5000)}


@pytest.mark.parametrize("epilogue", [("gelu", False), ("gelu", True), ("silu", True), ("none", True)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shape", SHAPES if ALL_CASES else ["flat"])
def test_grad_epilogue(device, shape, dtype, epilogue):
    activation, gated = epilogue
    torch.manual_seed(0)
    grad, pre, gate = (torch.randn(SHAPES[shape]).to(dtype) for _ in range(3))
    pre, gate = 3 * pre, gate if gated else None
    wide = [None if tensor is None else torch.cat([tensor, tensor.flip(0)], -1) for tensor in (grad, pre, gate)]
    end = grad.shape[-1]
    kinds = {
        "contiguous": (grad, pre, gate),
        "slices": (),
        "expanded": (grad, pre, gate),
        "transposed": [
            None if tensor is None else tensor.transpose(0, 1).contiguous().transpose(0, 1)
            for tensor in (grad, pre, gate)
        ],
    }
    for kind, tensors in kinds.items():
        there = list(map(device.put, tensors))
        if kind == "slices":
            there = [None if tensor is None else device.put(tensor)[..., end:] for tensor in wide]
        if kind == "expanded":  # as a sum's gradient; copied first
            there[0] = device.put(grad[:1, :1, :1]).expand(grad.shape)
        got = cuda.grad_epilogue(*there, activation)
        given = [None if tensor is None else tensor.clone().double() for tensor in there]
        want = plain.grad_epilogue(*given, activation)
        for one, two in zip(got, want):
            assert (one is None) == (two is None)
            if one is not None:
                assert one.is_contiguous() and one.dtype is dtype
                unit = torch.finfo(dtype).eps / 2  # rounded once; the curve to f32's last bits
                assert ((one.double() - two).abs() <= 1.01 * unit * two.abs() + 2e-6 * given[0].abs().max()).all(), (
                    kind,
                    shape,
                )
        again = cuda.grad_epilogue(*there, activation)
        assert all(one is None or torch.equal(one, two) for one, two in zip(got, again))


@pytest.mark.parametrize("activation", ["gelu", "silu"])
def test_grad_epilogue_of_what_is_not_finite(device, activation):
    """It stays in its element, and comes out as it does of PyTorch's own formulas."""
    odd = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e30, -1e30, 1.0])
    grad, pre, gate = (torch.randn(1, 8, 8, dtype=torch.float32) for _ in range(3))
    pre[0, 1] = grad[0, 3] = gate[0, 5] = odd
    got = cuda.grad_epilogue(*(device.put(tensor) for tensor in (grad, pre, gate)), activation)
    for one, two in zip(got, plain.grad_epilogue(grad.double(), pre.double(), gate.double(), activation)):
        torch.testing.assert_close(one.clone(), two.float(), equal_nan=True, rtol=1e-5, atol=1e-5)


def test_grad_epilogue_is_recorded_on_a_cpu_as_on_a_gpu(device):
    seen = []
    for run in (cuda.grad_epilogue, plain.grad_epilogue):
        with trigen.record() as recorder:
            for shape in SHAPES.values():
                for gated in (False, True):
                    grad, pre, gate = (device.put(torch.randn(shape).bfloat16()) for _ in range(3))
                    run(grad, pre, gate if gated else None, "gelu")
                    run(grad.transpose(1, 2), pre.transpose(1, 2), None, "silu")
        seen.append(recorder.counts)
    assert seen[0] == seen[1] and len(seen[0]) >= 8


def test_strides_are_used_where_possible_and_copied_elsewhere(device):
    x, _, weight, poisoned, _ = make(B=2, n=16, D=16)
    w = device.put(poisoned)
    want = plain.forward(x, weight)
    wide = torch.zeros(2, 16, 64, dtype=x.dtype)
    wide[..., 8:24] = x
    wide = device.put(wide)
    sliced = wide[..., 8:24]
    swapped = device.put(x.transpose(0, 1).contiguous().transpose(0, 1))
    odd = device.put(torch.zeros(2, 16, 17, dtype=x.dtype))
    odd[..., 1:] = x
    odd = device.put(odd)[..., 1:]  # pointer and stride are multiples of 2 bytes only
    transposed = device.put(x.transpose(1, 2).contiguous()).transpose(1, 2)
    for view, copied in ((sliced, False), (swapped, False), (odd, False), (transposed, True)):
        before = dict(launch.launches)
        got = cuda.forward(view, w)
        assert got.is_contiguous()
        torch.testing.assert_close(got.clone(), want, **TOLERANCE[x.dtype])
        made = [one for key, one in launch.launches.items() if key not in before]
        assert any(one.copies for one in made) == copied
    texts = [info.problem for info in tt.plans()]
    assert sum("align=2" in text for text in texts) == 1
    expanded = device.put(x[:1]).expand(2, -1, -1)
    torch.testing.assert_close(
        cuda.forward(expanded, w).clone(), plain.forward(x[:1].repeat(2, 1, 1), weight), **TOLERANCE[x.dtype]
    )


@pytest.mark.parametrize(
    "fill,diag", [("lower", -1), ("lower", 3), ("upper", 1), ("upper", -5), ("lower", -4), ("upper", 4)]
)
@pytest.mark.parametrize("n", [1, 2])
def test_a_short_prefix_beyond_the_corner(device, n, fill, diag):
    """Strictly causal mixers on their first tokens: the triangle of the prefix is empty, or everything."""
    x, _, weight, _, bias = make(n=n, T=6, D=8, dtype=torch.float32)
    there = [device.put(tensor) for tensor in (x, weight, bias)]
    got = cuda.forward(*there, None, None, 0, "btd", fill, diag)
    torch.testing.assert_close(got.clone(), plain.forward(x, weight, bias, None, None, 0, "btd", fill, diag))
    dw, db = cuda.grad_weight(there[0], there[0], weight.shape, weight.dtype, True, 0, "btd", fill, diag)
    want = plain.grad_weight(x, x, weight.shape, weight.dtype, True, 0, "btd", fill, diag)
    torch.testing.assert_close((dw.clone(), db.clone()), want)


def test_a_known_combination_is_one_lookup(device, monkeypatch):
    x, _, _, poisoned, bias = make(n=16, D=16)
    there = [device.put(tensor) for tensor in (x, poisoned, bias)]
    first = cuda.forward(*there)

    def unexpected(*_):
        raise AssertionError("a known combination was checked or planned again")

    monkeypatch.setattr(cuda.arguments, "check_forward", unexpected)
    monkeypatch.setattr(launch, "make", unexpected)
    assert torch.equal(cuda.forward(*there).clone(), first.clone())  # the same bits
    other = [device.put(tensor) for tensor in (x, poisoned, bias)]
    assert torch.equal(cuda.forward(*other).clone(), first.clone())


def test_a_changed_argument_is_checked_again(device):
    x, _, _, poisoned, bias = make(n=16, D=16)
    there = [device.put(tensor) for tensor in (x, poisoned, bias)]
    cuda.forward(*there)
    with pytest.raises(ValueError, match=r"bias has shape \[15\]"):
        cuda.forward(there[0], there[1], there[2][:15])
    with pytest.raises(TypeError, match="bias has dtype torch.float32"):
        cuda.forward(there[0], there[1], device.put(bias.float()))
    with pytest.raises(ValueError, match=r"gate has shape \[2, 16, 8\]"):
        cuda.forward(*there, there[0][..., :8])


def on_device(device, function):
    """The CUDA implementation behind functional.py; what PyTorch computed in between moves to the device first."""

    def run(*tensors_and_options):
        moved = [device.put(value) if isinstance(value, torch.Tensor) else value for value in tensors_and_options]
        return function(*moved)

    return run


def test_a_training_step_through_the_functional_form(device, monkeypatch):
    x, gate, weight, _, bias = make(n=16, D=16, dtype=torch.float32)
    leaves = [tensor.clone().requires_grad_() for tensor in (x, weight, bias, gate)]

    def step():
        y = tt.triangular_conv1d(leaves[0], leaves[1], leaves[2], gate=leaves[3], residual=leaves[0], activation="gelu")
        return [y.detach(), *torch.autograd.grad(y.square().sum(), leaves)]

    want = step()
    names = ("run_forward", "grad_epilogue", "grad_input", "grad_weight")
    kernels = SimpleNamespace(**{name: on_device(device, getattr(cuda, name)) for name in names})
    monkeypatch.setattr(ops, "kernels_of", lambda x: kernels)
    got = step()
    for one, two in zip(got, want):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)
    assert len(tt.plans()) == 4


def test_recording_has_the_plans_texts(device):
    x, dy, _, poisoned, bias = make(n=16, D=16)
    there = [device.put(tensor) for tensor in (x, dy, poisoned, bias)]
    with trigen.record() as seen:
        cuda.forward(there[0], there[2], there[3])
        cuda.forward(there[0][..., 1:9], there[2], there[3])
        cuda.grad_weight(there[1], there[0], poisoned.shape, poisoned.dtype, True)
    assert set(seen.problems) == {info.problem for info in tt.plans()}
    assert [text for text in seen.problems if "align=2" in text]


def test_float64_runs_plain_and_misses_follow_the_policy(device, library, monkeypatch, tmp_path):
    x, _, weight, poisoned, bias = make(n=8, D=8)
    torch.testing.assert_close(
        cuda.forward(x.double(), poisoned.double(), bias.double()),
        plain.forward(x.double(), weight.double(), bias.double()),
    )
    assert not tt.plans()
    there = [device.put(tensor) for tensor in (x, poisoned, bias)]
    runtime = library.Runtime(driver=f"emulated:{TARGET}", layers=[tmp_path / "empty.db"], no_jit=True)
    monkeypatch.setattr(library, "_shared", runtime)
    with pytest.raises(trigen.CacheMiss, match="forward,dtype=f16,B=2,H=1,T=8,D=8,K=1,pad=0,epilogue=bias"):
        cuda.forward(*there)
    before = tt.set_fallback("plain")
    try:
        trigen.errors.said.clear()
        with pytest.warns(trigen.TrigenWarning, match="plain torch operations run instead of a trigen kernel"):
            y = cuda.forward(*there)
        torch.testing.assert_close(y, plain_forward(x, weight, bias))
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("error")  # once, not per call
            cuda.forward(*there)
            cuda.forward(there[0][:1], *there[1:])
    finally:
        tt.set_fallback(before)
        runtime.close()


def plain_forward(x, weight, bias):
    return plain.forward(x, weight, bias)


def test_an_empty_batch_runs_no_kernel(device):
    x, dy, weight, _, bias = make(B=1, n=8, D=8)
    x, dy = x[:0], dy[:0]
    assert cuda.forward(x, weight, bias).shape == cuda.grad_input(dy, weight).shape == (0, 8, 8)
    dx, dw, db = cuda.gradients(dy, x, weight, bias, (0, "btd", "lower", 0, "none", "default", "dense"))
    assert dx.shape == x.shape and dw.shape == weight.shape and not dw.any() and not db.any() and not tt.plans()


def test_capture_refuses_a_new_combination(device, monkeypatch):
    x, _, _, poisoned, _ = make(n=8, D=16)
    there = [device.put(tensor) for tensor in (x, poisoned)]
    monkeypatch.setattr(launch, "is_capturing", lambda: True)
    with pytest.raises(
        RuntimeError, match="the stream is capturing a graph and this combination of shapes has no plan yet"
    ):
        cuda.forward(*there)
    monkeypatch.setattr(launch, "is_capturing", lambda: False)
    cuda.forward(*there)
    monkeypatch.setattr(launch, "is_capturing", lambda: True)
    cuda.forward(*there)  # known: nothing but the launch


@pytest.mark.parametrize("n, K", [(72, 3), (16, 1)])
def test_constant_weights(device, monkeypatch, n, K):
    prepares = K > 1 and TARGET == "sm_90a"  # elsewhere kernels read W as it lies
    x, _, weight, _, bias = make(B=1, n=n, D=64, K=K, dtype=torch.float16)
    mixer = tt.TriangularConv1d(n, K)
    x, *given = (device.put(tensor) for tensor in (x, weight, bias))
    mixer.weight, mixer.bias = (torch.nn.Parameter(tensor, requires_grad=False) for tensor in given)
    frozen = tt.freeze(mixer, x, constant_weights=True)
    frozen._bind(x)  # as it does for a GPU's tensor
    assert (frozen._prepared is not None) == prepares
    wanted = frozen(x).clone()
    torch.testing.assert_close(wanted, mixer(x), rtol=2e-2, atol=2e-2)
    with torch.no_grad():
        mixer.weight.data.mul_(2)  # unseen by PyTorch
    assert torch.equal(frozen(x), wanted) == prepares, "what was prepared is what runs"
    with torch.no_grad():
        mixer.weight.mul_(1)  # seen, but while a graph is captured
    monkeypatch.setattr(launch, "is_capturing", lambda: True)
    twice = frozen(x).clone()
    assert not torch.equal(twice, wanted), "the graph prepares W itself"
    monkeypatch.setattr(launch, "is_capturing", lambda: False)
    assert torch.equal(frozen(x), twice)
    with torch.no_grad():
        mixer.weight.data.mul_(0.5)
    assert torch.equal(frozen(x), twice) == prepares, "prepared again where that may run"


# ---- the C interface with NumPy arrays -----------------------------------------------------------------------------------------


def test_plans_from_numpy(emulated, library):
    import ctypes

    import numpy as np

    def put(array):
        array = np.ascontiguousarray(array)
        address = emulated.allocate(array.nbytes)
        emulated.write(address, array.ctypes.data, array.nbytes)
        return address

    rng = np.random.default_rng(0)
    x, w, bias = (
        rng.standard_normal((2, 9, 5), np.float32),
        rng.standard_normal((9, 9), np.float32),
        rng.standard_normal(9, np.float32),
    )
    w[np.triu_indices(9, 1)] = np.nan
    plan = library.shared_runtime().plan("forward,dtype=f32,B=2,T=9,D=5,epilogue=bias", 0)
    out = emulated.allocate(x.nbytes)
    tensor = trigen.DeviceTensor
    plan.run(x=tensor(put(x)), y=tensor(out), w=put(w), bias=put(bias))
    y = np.frombuffer((ctypes.c_byte * x.nbytes).from_address(out), np.float32).reshape(x.shape)
    np.testing.assert_allclose(y, np.tril(w) @ x + bias[:, None], rtol=1e-5, atol=1e-5)
    info = plan.describe()
    assert info.problem == "forward,dtype=f32,B=2,H=1,T=9,D=5,K=1,pad=0,epilogue=bias" and info.provenance in (
        "predicted",
        "measured",
    )
    with pytest.raises(trigen.BadRequest, match="x is null"):
        plan.run(y=tensor(out), w=put(w), bias=put(bias))
    with pytest.raises(trigen.BadRequest, match="y overlaps w|y overlaps x"):
        address = put(x)
        plan.run(x=tensor(address), y=tensor(address), w=put(w), bias=put(bias))
    plan.destroy()
    plan.destroy()


def test_a_known_call_reads_its_saved_tensors_once(device):
    """Activation checkpointing computes them again at the first reading and refuses a second."""
    known.forget()
    x, dy, weight, _, bias = make(n=16)
    x, dy, weight, bias = (device.put(tensor) for tensor in (x, dy, weight, bias))
    for tensor in (x, weight, bias):
        tensor.requires_grad_()
    known.learn("this call", x, weight, bias, (0, "btd", "lower", 0, "none", "default", "dense"), None)
    (call,) = known._calls["this call"]
    read = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: (read.append(1), tensor)[1]):
        y = known.apply(x, weight, bias, x.data_ptr(), weight.data_ptr(), call)
    got = torch.autograd.grad(y, (x, weight, bias), dy)
    assert len(read) == 2  # x and weight, each once
    want = torch.autograd.grad(plain.forward(x, weight, bias, None, None, 0, "btd"), (x, weight, bias), dy)
    for one, two in zip(got, want):
        torch.testing.assert_close(one.clone(), two, rtol=4e-3, atol=3e-2)
    known.forget()


@pytest.mark.parametrize("n, K", [(161, 1), (72, 3)])
def test_backward_takes_the_weight_that_forward_prepared(device, n, K):
    # Of several taps each op wants an order of its own; elsewhere kernels read the weight as it lies.
    shares = K == 1 and TARGET == "sm_90a"
    known.forget()
    given = make(B=1, n=n, D=64, K=K)
    x, dy, weight, bias = (device.put(given[i]) for i in (0, 1, 2, 4))
    for tensor in (x, weight, bias):
        tensor.requires_grad_()
    known.learn("this call", x, weight, bias, ((K - 1) // 2, "btd", "lower", 0, "none", "default", "dense"), None)
    (call,) = known._calls["this call"]

    def step(between=lambda: None):
        y = known.apply(x, weight, bias, x.data_ptr(), weight.data_ptr(), call)
        between()
        return torch.autograd.grad(y, (x, weight, bias), dy)

    call.learn_gradients((dy, x, weight), weight, True)  # as behind the first backward pass of a GPU's tensors
    assert (call.keeps is not None) == shares
    want = torch.autograd.grad(plain.forward(x, weight, bias, None, None, (K - 1) // 2, "btd"), (x, weight, bias), dy)
    for one, two in zip(step(), want):
        torch.testing.assert_close(one.clone(), two, rtol=4e-3, atol=3e-2)
    unseen = step(lambda: weight.data.zero_())
    assert bool(unseen[0].any()) == shares, "what forward prepared is what grad_input multiplies with"
    weight.data.copy_(given[2])
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        unseen = step(lambda: weight.data.zero_())
    assert not unseen[0].any(), "nothing stays in memory that activation checkpointing would give back"
    known.forget()
