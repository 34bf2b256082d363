"""Weights that are fewer numbers than T x T, form="toeplitz" and form="band": the same operators, modules and transforms as of a dense weight,
against that weight written out in full."""

import functools

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")

import reference
import trigen
import trigen.torch as tt
from emulated import ALL_CASES
from test_cuda_path import TOLERANCE, device  # noqa: F401
from trigen.torch import cuda, plain

F = torch.ops.trigen.forward.default
FP = torch.ops.trigen.forward_pre.default
GI = torch.ops.trigen.grad_input.default
GW = torch.ops.trigen.grad_weight.default


def in_full(w, width=0):
    """[H, T, T] of [H, T], or of [H, T, width]: entry by entry, NaN nowhere."""
    heads, tokens = w.shape[:2]
    full = w.new_zeros(heads, tokens, tokens)
    for t in range(tokens):
        for s in range(max(0, t - width + 1) if width else 0, t + 1):
            full[:, t, s] = w[:, t, s - t + width - 1] if width else w[:, t - s]
    return full


def make(form, B=2, H=1, n=7, D=3, T=None, width=3, layout="btd", dtype=torch.float64, wdtype=None, seed=0):
    """x, dy, weight (NaN where it has nothing), bias, and the full weight [H, T, T]."""
    generator = torch.Generator().manual_seed(seed)
    draw = functools.partial(torch.randn, generator=generator, dtype=torch.float64)
    T, head = T or n, (H,) if H > 1 else ()
    shape = (B, n, H * D) if layout == "btd" else (B, H * D, n)
    x, dy = draw(shape).to(dtype), draw(shape).to(dtype)
    weight = (draw(*head, T, *((width,) if form == "band" else ())) / n**0.5).to(wdtype or dtype)
    bias = draw(*head, T).to(wdtype or dtype)
    flat = weight.reshape(H, *weight.shape[len(head) :])
    full = in_full(flat, width if form == "band" else 0)
    if form == "band":
        before = torch.arange(T)[:, None] + torch.arange(width) < width - 1  # tokens before token 0
        weight = weight.masked_fill(before, float("nan"))
    return x, dy, weight, bias, full


CASES = {
    "toeplitz": dict(form="toeplitz"),
    "toeplitz, heads, a prefix": dict(form="toeplitz", H=3, n=5, T=8),
    "toeplitz, bdt": dict(form="toeplitz", H=2, layout="bdt", n=6, D=5),
    "toeplitz, one token": dict(form="toeplitz", n=1, T=4),
    "band": dict(form="band"),
    "band of one": dict(form="band", width=1, H=2),
    "band, heads, a prefix": dict(form="band", H=2, n=5, T=9, width=4),
    "band as wide as there are tokens": dict(form="band", width=7, layout="bdt"),
}


@pytest.mark.parametrize("case", CASES)
def test_numbers_follow_the_definition(case):
    options = CASES[case]
    form, layout = options["form"], options.get("layout", "btd")
    x, dy, weight, bias, full = make(**options)
    heads, n, T = options.get("H", 1), x.shape[1 if layout == "btd" else 2], full.shape[-1]
    given, right = dict(layout=layout, form=form), dict(layout=layout)
    full = full.unsqueeze(-1)
    np.testing.assert_allclose(F(x, weight, bias, **given), reference.forward(x, full, bias, **right), atol=1e-12)
    np.testing.assert_allclose(GI(dy, weight, **given), reference.grad_input(dy, full, **right), atol=1e-12)
    dw, db = GW(dy, x, list(weight.shape), torch.float64, True, **given)
    want, want_bias = reference.grad_weight(dy, x, heads, 1, **right)
    dw = dw.reshape(heads, T, -1)
    for t in range(T):
        for at in range(dw.shape[-1]):
            if form == "toeplitz":
                there = np.trace(want[:, t:, : n - t, 0], axis1=1, axis2=2) if t < n else 0
            else:
                s = at + t - weight.shape[-1] + 1
                there = want[:, t, s, 0] if t < n and s >= 0 else 0
            np.testing.assert_allclose(dw[:, t, at], there, atol=1e-12)
    np.testing.assert_allclose(db.reshape(heads, T)[:, :n], want_bias, atol=1e-12)
    assert db.reshape(heads, T)[:, n:].count_nonzero() == 0


def test_a_band_wider_than_x_is_its_last_columns():
    x, _, weight, bias, full = make("band", n=3, T=8, width=5)
    weight, bias = weight.nan_to_num().requires_grad_(), bias.requires_grad_()
    y = tt.triangular_conv1d(x, weight, bias, form="band")
    np.testing.assert_allclose(y.detach(), reference.forward(x, full.unsqueeze(-1), bias.detach()), atol=1e-12)
    y.sum().backward()
    assert weight.grad[:, :2].count_nonzero() == 0 and weight.grad[3:].count_nonzero() == 0
    assert weight.grad[:3, 2:].count_nonzero() == 6  # the triangle of three tokens
    with pytest.raises(ValueError, match=r"a band of 5 tokens while x has 3; allowed: at most 3, weight\[..., -3:\]"):
        F(x, weight, form="band")


@pytest.mark.parametrize("way", ["operator", "function"])
@pytest.mark.parametrize("form", ["toeplitz", "band"])
@pytest.mark.parametrize(
    "activation,epilogue,case", [("none", False, dict(n=3)), ("gelu", True, dict(n=3, T=4, H=2, D=2))]
)
def test_gradcheck_and_second_derivatives(form, activation, epilogue, case, way):
    x, gate, weight, bias, _ = make(form, B=1, width=2, **case)
    inputs = [one.nan_to_num().requires_grad_() for one in (x, weight, bias, gate, gate + 1)]
    if not epilogue:
        inputs[3:] = None, None

    def call(x, weight, bias, gate, residual):
        if way == "operator":
            return FP(x, weight, bias, gate, residual, activation=activation, form=form)
        return tt.triangular_conv1d(x, weight, bias, gate=gate, residual=residual, activation=activation, form=form)

    assert torch.autograd.gradcheck(call, inputs)
    assert torch.autograd.gradgradcheck(call, inputs)


@pytest.mark.parametrize("operator", range(4))
@pytest.mark.parametrize("form", ["toeplitz", "band"])
def test_opcheck(form, operator):
    x, dy, weight, bias, _ = (one.nan_to_num().float().requires_grad_() for one in make(form, H=2, n=4, T=6))
    after = 0, "btd", "lower", 0
    call = (
        (F, (x, weight, bias, dy, dy, *after, "gelu", "default", form)),
        (FP, (x, weight, None, None, None, *after, "silu", "default", form)),
        (GI, (dy, weight, x, *after, "default", form)),
        (GW, (dy, x, list(weight.shape), torch.float32, True, *after, "default", form)),
    )[operator]
    results = torch.library.opcheck(*call)
    assert set(results.values()) == {"SUCCESS"}, results


@pytest.mark.parametrize("form", ["toeplitz", "band"])
def test_transforms_and_compile_have_the_numbers_of_eager_mode(form):
    x, dy, weight, bias, _ = (one.nan_to_num() for one in make(form, H=2, n=4, D=2, T=6))

    def loss(x, weight, bias):
        return (tt.triangular_conv1d(x, weight, bias, activation="gelu", form=form) * dy).sum()

    inputs = [one.clone().requires_grad_() for one in (x, weight, bias)]
    want = torch.autograd.grad(loss(*inputs), inputs)
    for one, two in zip(torch.func.grad(loss, (0, 1, 2))(x, weight, bias), want):
        torch.testing.assert_close(one, two)
    _, tangent = torch.func.jvp(loss, (x, weight, bias), (x, weight, bias))
    torch.testing.assert_close(tangent, sum((one * two).sum() for one, two in zip(want, (x, weight, bias))))
    rows = torch.vmap(lambda one: tt.triangular_conv1d(x, one, bias, form=form))(torch.stack([weight, 2 * weight]))
    torch.testing.assert_close(rows[1], tt.triangular_conv1d(x, 2 * weight, bias, form=form))
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=True)
    again = [one.clone().requires_grad_() for one in (x, weight, bias)]
    for one, two in zip(torch.autograd.grad(compiled(*again), again), want):
        torch.testing.assert_close(one, two)


def test_autocast_leaves_the_weight_float32():
    x, _, weight, bias, _ = make("toeplitz", dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        y = tt.triangular_conv1d(x, weight.requires_grad_(), bias, form="toeplitz")
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y, F(x.bfloat16(), weight.detach(), bias, form="toeplitz"))
    y.float().sum().backward()
    assert weight.grad.dtype == torch.float32


def test_counted_operations():
    from torch.utils.flop_counter import FlopCounterMode

    x, _, weight, _, _ = make("band", n=7, width=3, dtype=torch.float32)
    for form, pairs in (("toeplitz", 28), ("band", 18)):
        with FlopCounterMode(display=False) as counter:
            tt.triangular_conv1d(x, weight if form == "band" else weight[:, 0], form=form)
        assert counter.get_total_flops() == 2 * x.shape[0] * x.shape[2] * pairs


X = torch.zeros(2, 4, 6)
REFUSED = [
    (
        dict(weight=torch.zeros(4, 4), form="circulant"),
        r"form='circulant' is not known; allowed: dense, toeplitz, band",
    ),
    (
        dict(weight=torch.zeros(4, 4, 1)),
        r"weight has shape \[4, 4, 1\] with form='toeplitz'; allowed: \[T\] or \[heads, T\]",
    ),
    (dict(weight=torch.zeros(4), form="band"), r"with form='band'; allowed: \[T, width\] or \[heads, T, width\]"),
    (
        dict(weight=torch.zeros(4), fill="upper"),
        r"fill='upper' and diagonal=0 with form='toeplitz'; allowed: fill='lower'",
    ),
    (dict(weight=torch.zeros(4, 2), form="band", diagonal=-1), r"diagonal=-1 with form='band'; allowed: .* diagonal=0"),
    (
        dict(weight=torch.zeros(4, 5), form="band"),
        r"a band of 5 tokens while there are 4; allowed: a width of at most 4",
    ),
    (dict(weight=torch.zeros(4), padding=1), r"pad=1 is outside the taps; allowed: 0 to K-1 = 0"),
    (dict(weight=torch.zeros(3)), r"x has 4 tokens .* while weight has shape \[3\]; allowed: at most 3 tokens"),
    (
        dict(weight=torch.zeros(4, 4)),
        r"x has 6 features .* while weight \[4, 4\] has 4 heads; .* its first column \[T\]",
    ),
    (dict(weight=torch.zeros(4, 3), x=X[:, :3]), r"while weight \[4, 3\] has 4 heads; allowed: a multiple of 4$"),
    (dict(weight=torch.zeros(2, 4), bias=torch.zeros(4)), r"bias has shape \[4\] .*; allowed: \[2, 4\]"),
    (dict(weight=torch.zeros(0)), r"weight has shape \[0\]; every size must be at least 1"),
]


@pytest.mark.parametrize("change,text", REFUSED, ids=lambda value: value[:40] if isinstance(value, str) else None)
def test_bad_input_is_refused_in_words(change, text):
    given = {"form": "toeplitz", **change}
    with pytest.raises(ValueError, match=text):
        tt.triangular_conv1d(given.pop("x", X), given.pop("weight"), **given)
    with pytest.raises(TypeError, match="weight has dtype torch.float64 while x has torch.float32"):
        tt.triangular_conv1d(X, torch.zeros(4).double(), form="toeplitz")


# ---- modules -------------------------------------------------------------------------------------------------------------

MODULES = {
    "toeplitz": dict(form="toeplitz"),
    "toeplitz with heads": dict(form="toeplitz", heads=2, activation="silu"),
    "band": dict(form="band", width=5, activation="gelu"),
    "band with heads": dict(form="band", width=3, heads=2, bias=False),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_the_full_weights_and_decode(name):
    torch.manual_seed(1)
    options = MODULES[name]
    module = tt.TriangularConv1d(9, **options, dtype=torch.float64)
    dense = tt.TriangularConv1d(
        9, heads=module.heads, bias=module.bias is not None, activation=module.activation, dtype=torch.float64
    )
    weight = module.weight.detach()
    full = in_full(weight.reshape(module.heads, *weight.shape[-2 if module.width else -1 :]), module.width or 0)
    state = {"weight": full.unsqueeze(-1)} | ({} if module.bias is None else {"bias": module.bias.detach()})
    dense.load_state_dict(state)
    x, gate = torch.randn(2, 2, 9, 4, dtype=torch.float64)
    torch.testing.assert_close(module(x, gate, x), dense(x, gate, x))
    torch.testing.assert_close(module(x[:, :2]), dense(x[:, :2]))  # fewer tokens than a row of the band has
    torch.testing.assert_close(module(x[0]), dense(x[0]))
    cache, rows = module.new_cache(2, 4), []
    for first, last in ((0, 1), (1, 4), (4, 5), (5, 9)):
        rows.append(module.decode(x[:, first:last], cache))
    torch.testing.assert_close(torch.cat(rows, 1), dense(x).detach())
    again = tt.TriangularConv1d(9, **options, dtype=torch.float64)
    again.load_state_dict(module.state_dict())
    torch.testing.assert_close(tt.freeze(again, x)(x), dense(x).detach())
    assert f"form={module.form}" in repr(module)
    with torch.no_grad():
        module.weight.fill_(1)
        module.clear_outside()
        width = module.width or 1
        assert module.weight.sum() == module.heads * (9 * width - width * (width - 1) / 2)


def test_heads_in_the_batch():
    torch.manual_seed(2)
    for options in (dict(form="toeplitz"), dict(kernel_size=1)):
        module = tt.TriangularConv1d(6, heads=3, layout="bdt", heads_in_batch=True, **options)
        x = torch.randn(2, 3, 5, 6)
        weight = in_full(module.weight) if options.get("form") else module.weight[..., 0].tril()
        want = torch.einsum("hts,bhds->bhdt", weight, x) + module.bias[:, None]
        torch.testing.assert_close(module(x.flatten(0, 1)), want.flatten(0, 1))
        with pytest.raises(ValueError, match=r"x has shape \[4, 5, 6\]; allowed: \[batch \* 3, features, tokens\]"):
            module(x.flatten(0, 1)[:4])


def test_modules_refuse_in_words():
    for options, text in (
        (dict(form="circulant"), "form='circulant' is not known; allowed: dense, toeplitz, band"),
        (dict(form="band"), "width=None with form='band'; allowed: 1 to tokens=6"),
        (dict(form="band", width=7), "width=7 with form='band'; allowed: 1 to tokens=6"),
        (dict(width=3), "width=3 with form='dense'; only a band has one"),
        (dict(form="toeplitz", kernel_size=3), "kernel_size=3, .* with form='toeplitz'; allowed: 1, 'lower', 0"),
        (dict(form="toeplitz", fill="upper"), "fill='upper'"),
        (dict(heads=2, heads_in_batch=True), "heads_in_batch with layout='btd'; allowed: layout='bdt'"),
    ):
        with pytest.raises(ValueError, match=text):
            tt.TriangularConv1d(6, **options)


# ---- kernels on the emulated device ----------------------------------------------------------------------------------------

THERE = {
    "toeplitz": dict(form="toeplitz", n=24, D=16, dtype=torch.float16),
    "toeplitz, odd sizes": dict(form="toeplitz", n=37, D=9, dtype=torch.float32),
    "toeplitz, heads, a prefix, bf16 beside float32": dict(
        form="toeplitz", H=2, n=13, T=20, D=8, dtype=torch.bfloat16, wdtype=torch.float32
    ),
    "toeplitz, bdt": dict(form="toeplitz", H=2, n=20, D=12, layout="bdt", dtype=torch.float16),
    "band": dict(form="band", n=72, D=16, width=16, dtype=torch.float16),
    "band, odd sizes": dict(form="band", n=37, D=9, width=5, dtype=torch.float32),
    "band, heads, a prefix, bf16 beside float32": dict(
        form="band", H=2, n=13, T=20, D=8, width=7, dtype=torch.bfloat16, wdtype=torch.float32
    ),
    "band, bdt": dict(form="band", n=20, D=12, width=20, layout="bdt", dtype=torch.float16),
}
VIEWS = {  # what lies in memory, and the tensor in it
    "as made": (lambda x: x, lambda there, shape: there),
    "odd addresses": (lambda x: torch.cat([x.flatten()[:1], x.flatten()]), lambda there, shape: there[1:].view(shape)),
    "slices": (lambda x: torch.cat([x, x], -1), lambda there, shape: there[..., : shape[-1]]),
    "copies": (lambda x: x.repeat_interleave(2, -1), lambda there, shape: there[..., ::2]),
}


# On another target each case lies in one way, toeplitz in one and the band of its kind in the other.
TURNS = [(case, ("as made", "odd addresses")[(i + i // 4) % 2]) for i, case in enumerate(THERE)]


@pytest.mark.parametrize("case,view", [(case, view) for case in THERE for view in VIEWS] if ALL_CASES else TURNS)
def test_kernels_against_double(device, case, view):  # noqa: F811
    """With NaN in what a band has before token 0, and a CPU records the problems that the kernels' plans have."""
    options = THERE[case]
    x, dy, weight, bias, full = make(**options)
    form, layout, tolerance = options["form"], options.get("layout", "btd"), TOLERANCE[x.dtype]
    lies, within = VIEWS[view]
    there = [within(device.put(lies(one)), one.shape) for one in (x, dy, weight)] + [device.put(bias)]
    rest = 0, layout, "lower", 0
    right = [one.double() for one in (x, dy, full.to(x.dtype))]
    want = reference.forward(right[0], right[2].unsqueeze(-1), bias.double(), layout=layout)
    exact = plain.grad_weight(right[1], right[0], list(weight.shape), torch.float64, True, *rest, "default", form)

    with trigen.record() as recorder:
        y = cuda.forward(there[0], there[2], there[3], None, None, *rest, "none", "default", form)
        dx, dw, db = cuda.gradients(there[1], there[0], there[2], there[3], (*rest, "none", "default", form))
        again = cuda.grad_weight(there[1], there[0], weight.shape, weight.dtype, True, *rest, "default", form)[0]
    torch.testing.assert_close(y.double(), torch.from_numpy(want), **tolerance)
    want = reference.grad_input(right[1], right[2].unsqueeze(-1), layout=layout)
    torch.testing.assert_close(dx.double(), torch.from_numpy(want), **tolerance)
    scale = dict(rtol=tolerance["rtol"], atol=tolerance["atol"] * 8)
    torch.testing.assert_close(dw.double(), exact[0], **scale)
    torch.testing.assert_close(db.double(), exact[1], **scale)
    assert torch.equal(dw.clone(), again.clone())  # the same bits, and zeros where nothing is written
    assert all(f"w={form}" in text for text in recorder.problems) and len(tt.plans()) >= 3
    with trigen.record() as on_cpu:
        plain.forward(there[0], there[2], there[3], None, None, *rest, "none", "default", form)
        plain.grad_input(there[1], there[2], None, *rest, "default", form)
        plain.grad_weight(there[1], there[0], weight.shape, weight.dtype, True, *rest, "default", form)
    assert set(on_cpu.problems) == set(recorder.problems) == {info.problem for info in tt.plans()}
