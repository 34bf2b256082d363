"""scan: plain torch against the matrix that the vectors stand for, modes, bad input, decoding."""

import pytest

torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")

import trigen.torch as tt
from emulated import THOROUGH
from scan_inputs import make
from trigen.torch import recurrence
from trigen.torch import vectors as vectors_module

TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def dense(source, target, decay, diagonal):
    """[H, T, T] in float64, entry by entry."""
    heads, n = source.shape
    rows = []
    for t in range(n):
        below = [target[:, t] * decay[:, s + 1 : t + 1].prod(1) * source[:, s] for s in range(t)]
        rows.append(torch.stack([*below, diagonal[:, t], *[torch.zeros_like(diagonal[:, t])] * (n - t - 1)], 1))
    return torch.stack(rows, 1)


def mixed(x, vectors, bias, layout, activation="none", gate=None, residual=None):
    """The definition, by the matrix."""
    heads = vectors[0].shape[0]
    x = x if layout == "btd" else x.mT
    y = torch.einsum("hts,bshd->bthd", dense(*vectors), x.unflatten(2, (heads, -1)))
    y = (y + bias.T[None, :, :, None]).flatten(2)
    y = (
        torch.nn.functional.gelu(y)
        if activation == "gelu"
        else torch.nn.functional.silu(y)
        if activation == "silu"
        else y
    )
    y = y if layout == "btd" else y.mT
    y = y if gate is None else y * gate
    return y if residual is None else y + residual


# ---- plain torch ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["btd", "bdt"])
@pytest.mark.parametrize("activation", [None, "gelu", "silu"])
def test_it_is_the_matrix_with_all_derivatives(layout, activation):
    def leaves_of(**sizes):
        x, dy, vectors, bias = make(**sizes, layout=layout, dtype=torch.float64)
        return dy, [one.double().requires_grad_() for one in (x, *vectors, bias, x + 1, x - 1)]

    def function(*given):
        return tt.scan(*given[:6], gate=given[6], residual=given[7], layout=layout, activation=activation)

    dy, leaves = leaves_of(B=2, H=3, n=11, D=2)
    x, *vectors, bias, gate, residual = leaves
    y = function(*leaves)
    want = mixed(x, vectors, bias, layout, activation or "none", gate, residual)
    torch.testing.assert_close(y, want)
    for got, right in zip(torch.autograd.grad(y, leaves, dy), torch.autograd.grad(want, leaves, dy)):
        torch.testing.assert_close(got, right)
    # Number by number; of these 560 in a quick run along random directions, and of few.
    assert torch.autograd.gradgradcheck(function, leaves, fast_mode=not THOROUGH)
    assert torch.autograd.gradgradcheck(function, leaves_of(B=1, H=2, n=5, D=1)[1])


@pytest.mark.parametrize("n", [1, 2, 3, 33])
def test_few_tokens_zero_decays_and_prefixes(n):
    x, _, vectors, bias = make(n=max(n, 2), D=3, dtype=torch.float64)
    vectors = [one.double() for one in vectors]
    vectors[2][:, ::2] = 0
    vectors[2][:, 0] = float("nan")  # does not count
    x[:, n:] = float("nan")
    part = x[:, :n]
    want = mixed(part, [one[:, :n] for one in vectors], bias.double()[:, :n], "btd")
    if n > 1:
        torch.testing.assert_close(tt.scan(part, *vectors, bias), want)
        x[:, n - 1] = float("nan")
        assert not tt.scan(x[:, :n], *vectors, bias)[:, : n - 1].isnan().any()
    else:
        torch.testing.assert_close(tt.scan(part, *[one[:, :1] for one in vectors], bias[:, :1]), want)


SPELLINGS = {
    "column repeat": (lambda v, d: dict(target=v, decay=d), lambda v, d: (torch.ones_like(v), v, d)),
    "row repeat": (lambda v, d: dict(source=v, decay=d), lambda v, d: (v, torch.ones_like(v), d)),
    "both, no decay": (lambda v, d: dict(source=v, target=v), lambda v, d: (v, v, torch.ones_like(v))),
    "nothing": (lambda v, d: dict(bias=torch.zeros_like(v)), lambda v, d: (torch.ones_like(v),) * 3),
}


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("spelling", ["number", "[H]", "[H, 1]", "[T]", "[H, T]"])
def test_what_is_left_out_is_one_and_the_rest_broadcasts(name, spelling):
    heads, n = 3, 7
    v = torch.randn(heads, n, dtype=torch.double)
    decay = {
        "number": 0.5,
        "[H]": torch.tensor([0.5, 0.75, 1.0]).double(),
        "[H, 1]": torch.tensor([[0.5], [0.75], [1.0]]).double(),
        "[T]": torch.rand(n).double(),
        "[H, T]": torch.rand(heads, n).double(),
    }[spelling]
    whole = torch.as_tensor(decay, dtype=torch.double)
    whole = (whole.unsqueeze(1) if spelling == "[H]" else whole).expand(heads, n)
    given, stands_for = SPELLINGS[name]
    source, target, full = stands_for(v, whole)
    x = torch.randn(2, n, heads * 2, dtype=torch.double)
    want = mixed(x, (source, target, full, source * target), torch.zeros_like(v), "btd")
    torch.testing.assert_close(tt.scan(x, **given(v, decay)), want)


@pytest.mark.parametrize("name", ["all", "target", "source and target"])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3,), (3, 1), (1, 7), (3, 7)])
@pytest.mark.parametrize("dtype", [torch.double, torch.float])
def test_gradients_have_the_vectors_shapes_and_dtypes(name, shape, dtype):
    """Of vectors of more tokens than x has, beside ones of one head, or one number."""
    heads, tokens, n = 3, 7, 5
    torch.manual_seed(0)
    x, dy = (torch.randn(2, n, heads * 2, dtype=torch.double) for _ in range(2))
    source = torch.randn(heads, tokens, dtype=torch.double)
    other = torch.rand(shape, dtype=dtype)
    columns = (0, 1) if name == "source and target" else (1,) if name == "target" else range(4)
    given = [None] * 5
    for at in columns:
        given[at] = torch.randn((heads, tokens) if at % 2 else other.shape if shape != (3,) else (), dtype=dtype)
    given[2], given[4] = other, source[:1, 0] if name == "target" else torch.randn(tokens, dtype=dtype)
    leaves = [None if one is None else one.clone().requires_grad_() for one in given]
    y = tt.scan(x, *leaves)
    whole = []
    for at, one in enumerate(leaves):
        if one is None:
            whole.append(torch.ones(heads, n).double())
        else:
            one = one.double()
            one = one.unsqueeze(1) if at == 2 and shape == (3,) else one
            whole.append(one.expand(heads, tokens)[:, :n])
    diagonal = whole[3] if leaves[3] is not None else whole[0] * whole[1]
    want = mixed(x, (*whole[:3], diagonal), whole[4], "btd")
    torch.testing.assert_close(y, want)
    leaves = [one for one in leaves if one is not None]
    for leaf, got, right in zip(leaves, *(torch.autograd.grad(one, leaves, dy) for one in (y, want))):
        assert got.dtype == leaf.dtype and got.shape == leaf.shape
        torch.testing.assert_close(got, right)


@pytest.mark.parametrize("constant", [1.0, 2.0, 3])
@pytest.mark.parametrize("decay_range", [(0.9, 1.0), (0.0, 1.0), (-float("inf"), 1), None])
def test_a_range_and_a_root_are_clip_and_power(decay_range, constant):
    """Also where a decay is at a bound, which passes its gradient on, and next to one."""
    if decay_range == (-float("inf"), 1) and constant != 1:
        with pytest.raises(ValueError, match="the smallest not below 0 where decays are taken to a power"):
            tt.scan(torch.zeros(1, 2, 1), decay=0.5, decay_range=decay_range, decay_constant=constant)
        return
    for dtype in (torch.float, torch.double):
        one = torch.tensor(1.0, dtype=dtype)
        low = torch.tensor(0.9, dtype=dtype)
        beside = [torch.nextafter(bound, to * one) for bound in (low, one) for to in (-2, 2)]
        raw = torch.stack([low, one, *beside, 0.95 * one, 0.5 * one, 1.5 * one]).unsqueeze(1).requires_grad_()
        x, dy = (torch.randn(2, 5, 9, dtype=dtype) for _ in range(2))
        clipped = raw if decay_range is None else raw.clip(*decay_range)
        want = tt.scan(x, decay=clipped ** (1 / constant))
        y = tt.scan(x, decay=raw, decay_range=decay_range, decay_constant=constant)
        torch.testing.assert_close(y, want)
        (got,), (right,) = (torch.autograd.grad(one, raw, dy) for one in (y, want))
        torch.testing.assert_close(got, right)
        assert torch.equal(got == 0, right == 0)
        state = tt.scan_state(x, decay=raw, decay_range=decay_range, decay_constant=constant)
        torch.testing.assert_close(state, tt.scan_state(x, decay=clipped ** (1 / constant)))
        row, _ = tt.scan_step(x[:, 4], 4, state, decay=raw, decay_range=decay_range, decay_constant=constant)
        torch.testing.assert_close(row, tt.scan_step(x[:, 4], 4, state, decay=clipped ** (1 / constant))[0])
    inside = torch.tensor([[0.93], [0.95], [0.99]], dtype=torch.double, requires_grad=True)
    v = torch.randn(3, 5, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradgradcheck(
        lambda v, d: tt.scan(x[..., :6], target=v, decay=d, decay_range=decay_range, decay_constant=constant),
        (v, inside),
    )


def test_clipping_and_powers_have_their_gradients():
    """A decay clipped to [0.9, 1] and to a power, of each head."""
    x, dy, vectors, bias = make(H=4, n=9, D=2, dtype=torch.float64)
    target = vectors[1].double().requires_grad_()
    raw = torch.tensor([[0.5], [0.93], [0.97], [1.2]], dtype=torch.double, requires_grad=True)
    decay = raw.clip(0.9, 1) ** (1 / 2)
    y = tt.scan(x, target=target, decay=decay)
    whole = decay.expand_as(target)
    want = mixed(x, (torch.ones_like(target), target, whole, target), torch.zeros_like(target), "btd")
    for got, right in zip(*(torch.autograd.grad(one, (target, raw), dy, retain_graph=True) for one in (y, want))):
        torch.testing.assert_close(got, right)
    assert (
        torch.autograd.grad(tt.scan(x, target=target, decay=raw.clip(0.9, 1)), raw, dy)[0][[0, 3]].count_nonzero() == 0
    )


def test_16_bit_data_beside_float32_vectors():
    x, dy, vectors, bias = make(H=2, n=40, D=3)
    leaves = [one.clone().requires_grad_() for one in (*vectors, bias)]
    y = tt.scan(x.bfloat16(), *leaves)
    want = mixed(x.bfloat16().double(), [one.double() for one in vectors], bias.double(), "btd")
    assert y.dtype == torch.bfloat16
    assert (y.double() - want).abs().max() <= want.abs().max() / 256
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(tt.scan(x, *leaves), y)
    given = torch.autograd.grad(y, leaves, dy.bfloat16())
    assert all(one.dtype == torch.float32 and one.shape == leaf.shape for one, leaf in zip(given, leaves))


def test_no_matrix_of_all_tokens_is_made():
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            out = function(*args, **(kwargs or {}))
            sizes = [
                one.numel() for one in (out if isinstance(out, tuple) else (out,)) if isinstance(one, torch.Tensor)
            ]
            largest = max(largest, *sizes, 0)
            return out

    n = 4096
    x, given = torch.randn(1, n, 2), (None, torch.randn(n, requires_grad=True), None, None, None)
    with Watch():
        recurrence.multiply(vectors_module.placed(x, given, "btd").make(given), x.reshape(1, 1, n, 2))
    assert largest <= 4 * n


# ---- modes ---------------------------------------------------------------------------------------------------------------


def test_compiled_and_under_autocast():
    x, dy, vectors, bias = make(H=2, n=9, D=2)
    decay = torch.tensor(0.95, requires_grad=True)

    def run(x, decay):
        return tt.scan(x, vectors[0], vectors[1], decay.clip(0.9, 1), bias=bias, activation="gelu")

    without = torch.compile(lambda x, decay: tt.scan(x, decay=decay), backend="aot_eager", fullgraph=True)  # no bias
    (got,), (right,) = (torch.autograd.grad(one, decay, dy) for one in (without(x, decay), tt.scan(x, decay=decay)))
    torch.testing.assert_close(got, right)
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    for autocast in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            y, other = run(x, decay), compiled(x, decay)
        assert y.dtype == other.dtype == (torch.bfloat16 if autocast else torch.float32)
        torch.testing.assert_close(other, y)
        (got,), (right,) = (torch.autograd.grad(one, decay, dy.to(one.dtype)) for one in (other, y))
        torch.testing.assert_close(got, right)


def test_operators_are_what_torch_library_asks_for():
    x, w = torch.randn(2, 9, 6), torch.randn(4, 3, 9)
    bias = torch.randn(3, 9)
    for operator, given in (
        (torch.ops.trigen.scan, (x.requires_grad_(), w.requires_grad_(), bias, x.detach(), None, "btd", "gelu")),
        (torch.ops.trigen.scan, (x.detach(), w.detach(), None, None, None, "btd", "silu", True)),
        (torch.ops.trigen.scan_grad_input, (x.detach(), w.detach())),
        (torch.ops.trigen.scan_grad_weight, (x.detach(), x.detach(), w.detach(), True)),
        (torch.ops.trigen.scan_backward, (x.detach(), x.detach(), w.detach(), True)),
    ):
        torch.library.opcheck(operator.default, given)


def test_torch_func_forward_mode_and_vmap():
    x, _, vectors, bias = make(H=2, n=7, D=2, dtype=torch.float64)
    source, target, decay, _ = (one.double() for one in vectors)
    loss = lambda v: tt.scan(x, source, v, decay, activation="silu").square().sum()  # noqa: E731
    leaf = target.clone().requires_grad_()
    (right,) = torch.autograd.grad(loss(leaf), leaf)
    torch.testing.assert_close(torch.func.grad(loss)(target), right)
    _, tangent = torch.func.jvp(loss, (target,), (torch.ones_like(target),))
    torch.testing.assert_close(tangent, right.sum())
    several = torch.stack([target, 2 * target])
    each = torch.vmap(lambda v: tt.scan(x, source, v, decay))(several)
    torch.testing.assert_close(each[1], tt.scan(x, source, several[1], decay))
    y = tt.scan(x, source, leaf, decay)
    both = torch.autograd.grad(y, leaf, torch.stack([y, 2 * y]).detach(), is_grads_batched=True)[0]
    torch.testing.assert_close(both[1], 2 * both[0])


# ---- bad input -----------------------------------------------------------------------------------------------------------


def test_bad_input_is_refused_in_words():
    x, v = torch.zeros(2, 6, 4), torch.zeros(6)
    cases = {
        r"x has shape \[6, 4\]; allowed: rank 3": lambda: tt.scan(x[0], v),
        r"x has 6 tokens .* while the vectors have 5": lambda: tt.scan(x, v[:5]),
        r"target has shape \[1, 5\]: 5 tokens; allowed beside the other vectors: 6 or 1": lambda: tt.scan(x, v, v[:5]),
        r"target is a list; allowed: a number, or a floating tensor": lambda: tt.scan(x, target=[0.0] * 6),
        r"3 heads; allowed: a multiple of 3": lambda: tt.scan(x, torch.zeros(3, 6)),
        r"source is torch.int64 \[6\]; allowed": lambda: tt.scan(x, v.long()),
        r"decay has shape \[6\], and there are 6 heads of 6 tokens; allowed: \[6, 1\]": lambda: tt.scan(
            torch.zeros(2, 6, 12), torch.zeros(6, 6), decay=v
        ),
        r"activation='relu' is not known; allowed: none, gelu, silu": lambda: tt.scan(x, v, activation="relu"),
        r"layout='tbd' is not known": lambda: tt.scan(x, v, layout="tbd"),
        r"gate has shape \[6, 4\]; allowed: x's shape": lambda: tt.scan(x, v, gate=x[0]),
        r"decay_range=\(1, 0.9\) with decay_constant=1.0; allowed: \(smallest, largest\)": lambda: tt.scan(
            x, decay=0.9, decay_range=(1, 0.9)
        ),
        r"decay_range=0.9 with decay_constant=1.0; allowed": lambda: tt.scan(x, decay=0.9, decay_range=0.9),
        r"decay_constant=0; allowed: numbers above 0": lambda: tt.scan(x, decay=0.9, decay_constant=0),
        r"bias is a str": lambda: tt.scan(x, v, bias="no"),
        r"state is torch.float16 .*; allowed: torch.float32 \[2, 4\]": lambda: tt.scan_step(
            x[:, 0], 0, x[:, 0].half(), v
        ),
        r"t=6; allowed: an integer from 0 to 5": lambda: tt.scan_step(x[:, 0], 6, x[:, 0], v),
        r"allowed: \[batch, features\]": lambda: tt.scan_step(x, 0, x[:, 0], v),
        r"allowed: \[4, heads, n\]": lambda: torch.ops.trigen.scan(x, torch.zeros(1, 3, 6)),
    }
    for message, call in cases.items():
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="dtype torch.int32"):
        tt.scan(x.int(), v)


# ---- decoding ------------------------------------------------------------------------------------------------------------


def test_the_first_decay_does_not_count_whatever_it_holds():
    x, decay = torch.randn(2, 5, 6), torch.rand(2, 5)
    with_nan = decay.clone()
    with_nan[:, 0] = float("nan")
    torch.testing.assert_close(tt.scan(x, decay=with_nan), tt.scan(x, decay=decay))
    torch.testing.assert_close(tt.scan_state(x, decay=with_nan), tt.scan_state(x, decay=decay))
    row, state = tt.scan_step(x[:, 0], 0, torch.zeros(2, 6), decay=with_nan)
    torch.testing.assert_close(row, x[:, 0])
    torch.testing.assert_close(state, tt.scan_state(x[:, :1], decay=decay[:, :1]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("prefix", [0, 1, 57])
def test_decoding_is_the_same_rows(dtype, prefix):
    """Within one rounding of the output and 4 t roundings of float32 of the absolute values that are summed (docs/structured-weights.md)."""
    x, _, vectors, bias = make(H=2, n=64, D=8, dtype=dtype, decays=(0.0, 1.0))
    heads = dict(zip(("source", "target", "decay", "diagonal"), vectors), bias=bias)
    y = tt.scan(x, **heads)
    absolute = mixed(x.double().abs(), [one.double().abs() for one in vectors], bias.double().abs(), "btd")
    state = tt.scan_state(x[:, :prefix], **heads) if prefix else torch.zeros(2, 16)
    assert state.dtype == torch.float32 and state.shape == (2, 16)
    if prefix:
        other = tt.scan_state(x[:, :prefix].mT.contiguous(), **heads, layout="bdt")
        torch.testing.assert_close(other, state)
    unit = 2.0**-24 if dtype == torch.float32 else 2.0**-8
    for t in range(prefix, 64):
        given, before = x[:, t], state.clone()
        row, after = tt.scan_step(given, t, state, **heads)
        assert torch.equal(state, before) and row.dtype == dtype
        bound = unit * y[:, t].double().abs() * 2 + 2 * 4 * (t + 1) * 2.0**-24 * absolute[:, t]
        assert ((row.double() - y[:, t].double()).abs() <= bound).all()
        state = after
