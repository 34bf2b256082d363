"""scan of trigen.jax on JAX's CPU: the matrix that the vectors stand for with its derivatives, PyTorch's form, transforms, decoding, messages.
Kernels behind XLA: test_jax_handler.py."""

import numpy as np
import pytest

jax = pytest.importorskip("jax", "0.6", reason="[SKIP] jax 0.6 or later is not installed")

import jax.numpy as jnp
import trigen
import trigen.jax as tj

jax.config.update("jax_disable_most_optimizations", True)  # XLA compiles many times as fast
NAMES = ("source", "target", "decay", "diagonal")
x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64


def dense(source, target, decay, diagonal):
    """[H, T, T], by the definition."""
    n = source.shape[1]
    t, s, k = (jnp.arange(n)[shape] for shape in ((slice(None), None, None), (slice(None), None), slice(None)))
    decays = jnp.prod(jnp.where((s < k) & (k <= t), decay[:, None, None, :], 1), -1)
    below = target[:, :, None] * decays * source[:, None, :]
    return jnp.where(jnp.tri(n, k=-1, dtype=bool), below, 0) + diagonal[:, :, None] * jnp.eye(n)


def mixed(x, vectors, bias=None, layout="btd", activation=None, gate=1, residual=0):
    heads = vectors[0].shape[0]
    x = x if layout == "btd" else x.mT
    y = jnp.einsum("hts,bshd->bthd", dense(*vectors), x.reshape(*x.shape[:2], heads, -1), precision="highest")
    y = y if bias is None else y + bias.T[None, :, :, None]
    y = y.reshape(x.shape)
    y = y if layout == "btd" else y.mT
    y = {None: lambda v: v, "gelu": lambda v: jax.nn.gelu(v, approximate=False), "silu": jax.nn.silu}[activation](y)
    return y * gate + residual


def make(B=2, H=1, n=24, D=4, layout="btd", dtype=jnp.float32, decays=(0.9, 1.0)):
    """x, vectors, bias; numbers of float32."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(B, n, H * D) if layout == "btd" else (B, H * D, n)).astype(np.float32)
    vectors = [rng.normal(size=(H, n)).astype(np.float32) for _ in range(4)]
    vectors[2] = rng.uniform(*decays, size=(H, n)).astype(np.float32)
    return (
        jnp.asarray(x, dtype),
        [jnp.asarray(one) for one in vectors],
        jnp.asarray(rng.normal(size=(H, n)), jnp.float32),
    )


def close(one, two, **tolerance):
    assert jax.tree.structure(one) == jax.tree.structure(two)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two)):
        assert a.shape == b.shape and a.dtype == b.dtype
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        np.testing.assert_allclose(a, b, **{"rtol": 1e-5, "atol": 1e-5, **tolerance})


def double(*arrays):
    return [jnp.asarray(np.asarray(one, np.float64)) for one in arrays]


@pytest.mark.parametrize("layout", ["btd", "bdt"])
@pytest.mark.parametrize("activation", [None, "gelu", "silu"])
def test_it_is_the_matrix_with_all_derivatives(layout, activation):
    x, vectors, bias = make(H=3, n=7, D=2, layout=layout, decays=(0.0, 1.0))
    with x64(True):
        x, bias, *vectors = double(x, bias, *vectors)
        vectors[2] = vectors[2].at[:, 3].set(0)
        every = (x, *vectors, bias, x + 1, x - 1)
        options = dict(layout=layout, activation=activation)
        ours = lambda *a: tj.scan(*a[:6], gate=a[6], residual=a[7], **options)  # noqa: E731
        theirs = lambda *a: mixed(a[0], a[1:5], a[5], gate=a[6], residual=a[7], **options)  # noqa: E731

        def derivatives(f):
            first = jax.grad(lambda *given: (f(*given) ** 3).sum(), range(8))
            second = jax.grad(lambda *given: sum(jnp.sin(one).sum() for one in first(*given)), range(8))
            return jax.jit(lambda: (f(*every), first(*every), second(*every)))()

        close(derivatives(ours), derivatives(theirs), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_it_is_pytorchs(dtype):
    """Numbers and gradients, and in the dtypes that were given: the same roundings."""
    torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")
    import trigen.torch as tt

    x, (source, target, decay, _), bias = make(H=2, n=33, D=3, dtype=dtype)
    given = dict(x=x, source=source[0].astype(dtype), target=target, decay=decay[:, :1], bias=bias, gate=x + 1)
    gradient = jnp.cos(x.astype(jnp.float32)).astype(dtype)

    def there(array):
        return torch.from_numpy(np.array(array.astype(jnp.float32))).to(getattr(torch, array.dtype.name))

    y, back = jax.vjp(jax.jit(lambda given: tj.scan(**given, diagonal=0.5, activation="gelu")), given)
    tensors = {name: there(one).requires_grad_() for name, one in given.items()}
    right = tt.scan(**tensors, diagonal=0.5, activation="gelu")
    rights = torch.autograd.grad(right, list(tensors.values()), there(gradient))
    unit = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}[dtype]
    for ours, theirs in zip(
        (y, *back(gradient)[0].values()), (right, *(rights[list(tensors).index(n)] for n in sorted(given)))
    ):
        theirs = theirs.detach()
        assert ours.dtype.name == str(theirs.dtype)[6:] and ours.shape == theirs.shape
        size = np.abs(theirs.double().numpy()).max()
        np.testing.assert_allclose(np.asarray(ours, np.float64), theirs.double().numpy(), atol=unit * size, rtol=0)
    state = tj.scan_state(x, source, decay=decay)
    theirs = tt.scan_state(there(x), there(source), decay=there(decay))
    np.testing.assert_allclose(state, theirs.numpy(), rtol=1e-5, atol=1e-5)
    ours = tj.scan_step(x[:, 7], 7, state, source, target, decay, bias=bias)
    theirs = tt.scan_step(there(x[:, 7]), 7, theirs, *map(there, (source, target, decay)), bias=there(bias))
    for one, two in zip(ours, theirs):
        np.testing.assert_allclose(np.asarray(one, np.float64), two.double().numpy(), rtol=unit, atol=unit)


@pytest.mark.parametrize("n", [1, 2, 3, 33])
def test_few_tokens_zero_decays_and_prefixes(n):
    x, vectors, bias = make(n=max(n, 2), D=3)
    vectors[2] = vectors[2].at[:, ::2].set(0).at[:, 0].set(jnp.nan)  # the first does not count
    part = x[:, :n]
    f = jax.jit(lambda part, *given: tj.scan(part, *given))
    y, back = jax.vjp(lambda *given: f(part, *given), *vectors, bias)
    exact = [one.at[:, 0].set(0.5) if i == 2 else one for i, one in enumerate(vectors)]
    want = jax.jit(mixed)(part, [one[:, :n] for one in exact], bias[:, :n])
    close(y, want)
    gradients = back(jnp.ones_like(y))
    assert all(one.shape == (1, max(n, 2)) and jnp.isfinite(one).all() for one in gradients)
    assert gradients[2][0, 0] == 0 and all((one[:, n:] == 0).all() for one in gradients)
    late = f(part.at[:, n - 1].set(jnp.nan), *vectors, bias)
    assert jnp.isfinite(late[:, : n - 1]).all()


@pytest.mark.parametrize(
    "kind, spelling",
    [("column", one) for one in ("number", "scalar", "[H]", "[H, 1]", "[T]", "[H, T]")]
    + [(one, "[H, 1]") for one in ("row", "both", "nothing")],
)
def test_what_is_left_out_is_one_and_the_rest_broadcasts(kind, spelling):
    x, (v, _, decays, _), _ = make(H=3, n=7, D=2)
    decay = {
        "number": 0.5,
        "scalar": jnp.bfloat16(0.5),
        "[H]": decays[:, 0],
        "[H, 1]": decays[:, :1],
        "[T]": decays[0],
        "[H, T]": decays,
    }[spelling]
    ones = jnp.ones_like(v)
    given, source, target = {
        "column": (dict(target=v), ones, v),
        "row": (dict(source=v), v, ones),
        "both": (dict(source=v, target=v), v, v),
        "nothing": (dict(bias=0 * v), ones, ones),
    }[kind]
    whole = jnp.asarray(decay, jnp.float32)
    whole = jnp.broadcast_to(whole[:, None] if spelling == "[H]" else whole, v.shape)
    got = jax.jit(lambda: tj.scan(x, **given, decay=decay))()
    close(got, jax.jit(lambda: mixed(x, (source, target, whole, source * target)))())


def test_clipping_powers_and_shared_vectors_have_their_gradients():
    """As public layers have it: a decay clipped to [0.9, 1] and to a power, one vector for all heads."""
    x, (_, target, _, _), _ = make(H=4, n=9, D=2)
    raw = jnp.array([[0.5], [0.93], [0.97], [1.2]])

    def loss(f):
        back = jax.grad(lambda v, raw: jnp.sin(f(v, jnp.clip(raw, 0.9, 1) ** 0.5)).sum(), (0, 1))
        return jax.jit(back)(target[0], raw)

    got = loss(lambda v, decay: tj.scan(x, target=v, decay=decay))
    ones = jnp.ones((4, 9))
    close(got, loss(lambda v, decay: mixed(x, (ones, ones * v, ones * decay, ones * v))), rtol=1e-4, atol=1e-4)
    assert got[0].shape == (9,) and (got[1][jnp.array([0, 3])] == 0).all() and (got[1][1:3] != 0).all()


def test_a_range_and_a_root_are_what_pytorch_makes_of_them():
    """Numbers and gradients: below the range, at both bounds, inside and above; of decoding, too."""
    torch = pytest.importorskip("torch", reason="[SKIP] torch is not installed")
    import trigen.torch as tt

    x, (source, target, _, _), _ = make(H=5, n=9, D=2)
    raw = jnp.array([[0.5], [0.9], [0.97], [1.0], [1.2]], jnp.float32)
    options = dict(decay_range=(0.9, 1), decay_constant=4)

    def there(array):
        return torch.from_numpy(np.array(array))

    def ours(raw):
        y = tj.scan(x, source, target, decay=raw, **options)
        return jnp.sin(y).sum(), y

    (_, y), gradient = jax.jit(jax.value_and_grad(ours, has_aux=True))(raw)
    theirs = there(raw).requires_grad_()
    right = tt.scan(there(x), there(source), there(target), decay=theirs, **options)
    (want,) = torch.autograd.grad(right.sin().sum(), theirs)
    close(y, right.detach().numpy(), rtol=1e-5, atol=1e-5)
    close(gradient, want.numpy(), rtol=1e-4, atol=1e-5)
    assert ((np.asarray(gradient) == 0).ravel() == [True, False, False, False, True]).all()
    state = tj.scan_state(x[:, :8], source, target, raw, **options)
    last, _ = tj.scan_step(x[:, 8], 8, state, source, target, raw, **options)
    close(last, y[:, 8], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_data_beside_float32_vectors(dtype):
    """The recurrence in float32, one rounding; float32 vectors get float32 gradients."""
    x, vectors, bias = make(H=2, n=40, D=3, dtype=dtype)
    y, back = jax.vjp(jax.jit(lambda *given: tj.scan(x, *given)), *vectors, bias)
    want = jax.jit(mixed)(x.astype(jnp.float32), vectors, bias)
    assert y.dtype == dtype and (y == want.astype(dtype)).mean() > 0.98
    assert (
        np.abs(np.asarray(y - want, np.float64)).max()
        <= 2.0 ** (-10 if dtype == "float16" else -7) * np.abs(want).max()
    )
    assert [(one.dtype, one.shape) for one in back(y)] == [(jnp.float32, (2, 40))] * 5


@pytest.mark.parametrize("axes", [(1, None, None), (None, 0, None), (2, 1, 0), (0, 0, None)], ids=str)
@pytest.mark.parametrize("layout", ["btd", "bdt"])
def test_vmap_of_values_and_gradients(axes, layout):
    """An axis of x alone is more batch, an axis of any vector more heads."""
    x, (_, target, decay, _), _ = make(H=2, n=5, D=3, layout=layout)

    def ours(x, target, decay):
        return tj.scan(x, None, target, decay, bias=decay, gate=x, activation="silu", layout=layout)

    plain = (x, target, decay)
    given = [one if axis is None else jnp.stack([one, 2 * one, one / 3], axis) for one, axis in zip(plain, axes)]
    for f in (ours, jax.grad(lambda *given: (ours(*given) ** 2).sum(), (0, 1, 2))):
        got = jax.jit(jax.vmap(f, axes))(*given)
        alone = jax.jit(f)
        parts = [[one if a is None else jnp.take(one, i, a) for one, a in zip(given, axes)] for i in range(3)]
        want = jax.tree.map(lambda *parts: jnp.stack(parts), *(alone(*part) for part in parts))
        close(got, want, rtol=1e-4, atol=1e-4)


def test_no_matrix_of_all_tokens_is_made():
    x, vectors, _ = make(B=1, n=509, D=1)
    first = jax.grad(lambda *given: jnp.sin(tj.scan(x, *given)).sum(), range(4))
    second = jax.grad(lambda *given: sum(jnp.cos(one).sum() for one in first(*given)), range(4))
    text = jax.jit(second).lower(*vectors).as_text()
    assert "x509x" in text and "509x509" not in text


def test_an_empty_batch_and_what_a_loop_carries():
    v = jnp.ones(6)
    dx, dv = jax.grad(lambda x, v: tj.scan(x, v).sum(), (0, 1))(jnp.zeros((0, 6, 2)), v)
    assert dx.shape == (0, 6, 2) and (dv == 0).all()
    x, (source, target, decay, _), _ = make(n=6)
    layers = jnp.stack([target, source, decay])  # three layers, by lax.scan and jax.checkpoint

    def deep(x, layers):
        one = jax.checkpoint(lambda x, v: (tj.scan(x, target=v, decay=decay, residual=x), None))
        return jax.lax.scan(one, x, layers)[0].sum()

    def flat(x, layers):
        for v in layers:
            x = x + mixed(x, (jnp.ones_like(v), v, decay, v))
        return x.sum()

    got, want = (jax.jit(jax.grad(f, (0, 1)))(x, layers) for f in (deep, flat))
    close(got, want, rtol=1e-4, atol=1e-4)


# ---- decoding ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("prefix", [0, 1, 57])
def test_decoding_is_the_same_rows(dtype, prefix):
    """Within one rounding of the output and 4 t roundings of float32 of the absolute values that are summed (docs/structured-weights.md)."""
    x, vectors, bias = make(H=2, n=64, D=8, dtype=dtype, decays=(0.0, 1.0))
    given = dict(zip(NAMES, vectors), bias=bias)
    given["decay"] = given["decay"].at[:, 0].set(jnp.nan)  # does not count
    y = np.asarray(tj.scan(x, **given), np.float64)
    with x64(True):
        absolute = np.asarray(mixed(*double(jnp.abs(x))[:1], double(*map(jnp.abs, vectors)), *double(jnp.abs(bias))))
    state = tj.scan_state(x[:, :prefix], **given) if prefix else jnp.zeros((2, 16))
    assert state.dtype == jnp.float32 and state.shape == (2, 16)
    if prefix:
        close(tj.scan_state(x[:, :prefix].mT, **given, layout="bdt"), state)

    def step(state, t):
        row, state = tj.scan_step(jax.lax.dynamic_index_in_dim(x, t, 1, False), t, state, **given)
        return state, row

    state, rows = jax.lax.scan(step, state, jnp.arange(prefix, 64))
    assert rows.dtype == dtype
    unit = 2.0**-24 if dtype == jnp.float32 else 2.0**-8
    for t, row in zip(range(prefix, 64), np.asarray(rows, np.float64)):
        assert (np.abs(row - y[:, t]) <= unit * np.abs(y[:, t]) * 2 + 8 * (t + 1) * 2.0**-24 * absolute[:, t]).all()
    close(tj.scan_step(x[:, 63], 63, tj.scan_state(x[:, :63], **given), **given)[1], state, rtol=1e-4, atol=1e-4)


# ---- words ---------------------------------------------------------------------------------------------------------------


def test_bad_input_is_refused_in_words():
    x, v = jnp.zeros((2, 6, 4)), jnp.zeros(6)
    cases = {
        r"x has shape \[6, 4\]; allowed: rank 3, \[batch, tokens, features\] .*; jax.vmap adds axes": lambda: tj.scan(
            x[0], v
        ),
        r"x has 6 tokens .* while the vectors have 5; allowed: 1 to 5": lambda: tj.scan(x, v[:5]),
        r"x has 0 tokens .*; allowed: at least 1": lambda: tj.scan(x[:, :0]),
        r"target has shape \[1, 5\]: 5 tokens; allowed beside the other vectors: 6 or 1": lambda: tj.scan(x, v, v[:5]),
        r"4 features .* while the vectors have 3 heads; allowed: a multiple of 3": lambda: tj.scan(
            x, jnp.zeros((3, 6))
        ),
        r"source is int32 \[6\]; allowed: a number, or a floating array \[T\]": lambda: tj.scan(x, v.astype(int)),
        r"decay is bool \[\]; allowed": lambda: tj.scan(x, v, decay=True),
        r"decay has shape \[6\], and there are 6 heads of 6 tokens; allowed: \[6, 1\]": lambda: tj.scan(
            jnp.zeros((2, 6, 12)), jnp.zeros((6, 6)), decay=v
        ),
        r"activation='relu' is not known; allowed: none, gelu, silu": lambda: tj.scan(x, v, activation="relu"),
        r"layout='tbd' is not known; allowed: btd, bdt": lambda: tj.scan(x, v, layout="tbd"),
        r"gate has shape \[6, 4\] and dtype float32; allowed: x's \[2, 6, 4\]": lambda: tj.scan(x, v, gate=x[0]),
        r"state is float16 \[2, 4\]; allowed: float32 \[2, 4\]": lambda: tj.scan_step(
            x[:, 0], 0, x[:, 0].astype("float16"), v
        ),
        r"t=6; allowed: an integer from 0 to 5": lambda: tj.scan_step(x[:, 0], 6, x[:, 0], v),
        r"t=-1; allowed: an integer from 0 on": lambda: tj.scan_step(x[:, 0], -1, x[:, 0], 0.5),
        r"t=.*; allowed: an integer": lambda: jax.jit(lambda t: tj.scan_step(x[:, 0], t, x[:, 0], v))(0.5),
        r"allowed: \[batch, features\]": lambda: tj.scan_step(x, 0, x[:, 0], v),
        r"decay_range=\(1, 0.9\) with .*; allowed: \(smallest, largest\)": lambda: tj.scan(x, v, decay_range=(1, 0.9)),
        r"decay_constant=0; allowed: numbers above 0": lambda: tj.scan_state(x, v, decay_constant=0),
    }
    for message, call in cases.items():
        with pytest.raises(ValueError, match=message):
            call()
    for call in (lambda: tj.scan(x.astype(int), v), lambda: tj.scan_step(x[:, 0].astype(int), 0, x[:, 0], v)):
        with pytest.raises(TypeError, match="x has dtype int32; allowed: float16, bfloat16, float32"):
            call()
    with pytest.raises(TypeError, match="custom_vjp"):  # forward mode
        jax.jvp(lambda v: tj.scan(x, v), (v,), (v,))


def test_a_transposed_x_is_said(monkeypatch):
    monkeypatch.setattr(trigen.errors, "said", set())
    with pytest.warns(trigen.TrigenWarning, match=r"x has shape \[2, 5, 16\], .* give layout='bdt'"):
        tj.scan(jnp.ones((2, 5, 16)), jnp.ones(16))


def test_what_is_recorded_is_what_a_gpu_is_asked():
    x, vectors, bias = make(H=2, n=8, D=4, dtype=jnp.bfloat16)
    step = jax.jit(
        jax.grad(lambda *a: tj.scan(x, *a, gate=x, residual=x, activation="gelu").astype(jnp.float32).sum(), range(5))
    )
    with trigen.record() as seen:
        step(*vectors, bias)
        jax.jit(lambda x: tj.scan(x, layout="bdt"))(x.astype(jnp.float32))
        jax.jit(jax.grad(lambda x, v: tj.scan(x, v).sum(), (0, 1)))(x.astype(jnp.float32), vectors[0])
        jax.jit(jax.grad(lambda x: tj.scan(x, layout="bdt").sum()))(x.astype(jnp.float32))
    assert seen.problems == [
        "scan,dtype=bf16,B=2,H=2,T=8,D=4,K=1,pad=0,wdtype=f32,epilogue=bias+gelu+pre+gate+residual",
        "scan_grad_weight,dtype=bf16,B=2,H=2,T=8,D=4,K=1,pad=0,wdtype=f32,epilogue=bias",
        "scan,dtype=f32,B=2,H=1,T=8,D=8,K=1,pad=0,layout=bdt",
        "scan_grad_weight,dtype=f32,B=2,H=2,T=8,D=4,K=1,pad=0,epilogue=grad_input",
        "scan_grad_input,dtype=f32,B=2,H=1,T=8,D=8,K=1,pad=0,layout=bdt",
    ]
