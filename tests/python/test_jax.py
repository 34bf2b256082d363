"""trigen.jax on JAX's CPU: numbers and derivatives against the formula, transforms, messages, and what a GPU would be asked."""

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

jax = pytest.importorskip("jax", "0.6", reason="[SKIP] jax 0.6 or later is not installed")

import jax.numpy as jnp
import trigen
import trigen.jax as tj

jax.config.update("jax_disable_most_optimizations", True)  # XLA compiles many times as fast

CASES = {
    "product": dict(),
    "taps": dict(taps=3),
    "heads": dict(heads=2, taps=2, bias=True),
    "prefix": dict(n=3, bias=True, taps=2),
    "bdt": dict(layout="bdt", fill="upper", diagonal=1, heads=2),
    "epilogue": dict(activation="gelu", gate=True, residual=True, bias=True),
    "silu": dict(activation="silu", taps=2, padding="causal"),
    "gate": dict(gate=True),
    "residual": dict(residual=True, taps=4, padding=0),
    "empty": dict(diagonal=-4),
    "two axes": dict(rank=2, bias=True),
    "toeplitz": dict(form="toeplitz", bias=True),
    "toeplitz, heads, a prefix": dict(form="toeplitz", heads=2, n=3, bias=True, gate=True, activation="gelu"),
    "band": dict(form="band", width=2, bias=True, residual=True, layout="bdt"),
    "band, heads, fewer tokens than it has": dict(form="band", width=3, heads=2, n=2, bias=True),
}


def setup(
    n=4,
    T=4,
    D=3,
    taps=1,
    heads=1,
    rank=4,
    layout="btd",
    bias=False,
    gate=False,
    residual=False,
    dtype=jnp.float32,
    form="dense",
    width=0,
    **options,
):
    keys = iter(jax.random.split(jax.random.key(0), 8))
    shape = (2, n, heads * D) if layout == "btd" else (2, heads * D, n)
    size = {"toeplitz": (heads, T), "band": (heads, T, width)}.get(form, (T, T) if rank == 2 else (heads, T, T, taps))
    tensors = [jax.random.normal(next(keys), size, dtype) for size in (shape, size)]
    names = ["bias"] * bias + ["gate"] * gate + ["residual"] * residual
    tensors += [
        jax.random.normal(next(keys), ((T,) if rank == 2 else (heads, T)) if name == "bias" else shape, dtype)
        for name in names
    ]

    def ours(x, weight, *rest):
        return tj.triangular_conv1d(x, weight, layout=layout, form=form, **dict(zip(names, rest)), **options)

    def entry(w, h, t, s):
        """W[h, t, s] of the numbers that stand for it."""
        inside = 0 <= t - s < (width or T)
        return (w[h, t - s] if form == "toeplitz" else w[h, t, s - t + width - 1]) if inside else jnp.zeros((), w.dtype)

    def theirs(x, weight, *rest):
        """jnp.tril and a convolution of JAX's own, head by head."""
        given, pad = dict(zip(names, rest)), options.get("padding", "same")
        pad = {"same": (taps - 1) // 2, "causal": taps - 1}.get(pad, pad)
        cut = jnp.triu if options.get("fill") == "upper" else jnp.tril
        if form != "dense":
            weight = jnp.stack([entry(weight, h, t, s) for h in range(heads) for t in range(T) for s in range(T)])
        weight = weight.reshape(heads, T, T, taps)
        x = x if layout == "btd" else x.transpose(0, 2, 1)
        parts = []
        for h, part in enumerate(jnp.split(x, heads, 2)):
            masked = cut(weight[h].transpose(2, 0, 1), options.get("diagonal", 0)).transpose(1, 2, 0)[:n, :n]
            y = jax.lax.conv_general_dilated(
                part,
                masked,
                (1,),
                [(pad, taps - 1 - pad)],
                dimension_numbers=("NCH", "OIH", "NCH"),
                precision="highest",
            )
            parts.append(y + (given["bias"].reshape(heads, T)[h, :n, None] if "bias" in given else 0))
        y = jnp.concatenate(parts, 2)
        y = y if layout == "btd" else y.transpose(0, 2, 1)
        y = {None: lambda v: v, "gelu": lambda v: jax.nn.gelu(v, approximate=False), "silu": jax.nn.silu}[
            options.get("activation")
        ](y)
        return y * given.get("gate", 1) + given.get("residual", 0)

    return ours, theirs, tensors


def close(one, two, **tolerance):
    assert jax.tree.structure(one) == jax.tree.structure(two)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two)):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(
            np.asarray(a, np.float64), np.asarray(b, np.float64), **{"rtol": 2e-5, "atol": 2e-5, **tolerance}
        )


@pytest.mark.parametrize("case", CASES)
def test_numbers_and_gradients_of_the_formula(case):
    ours, theirs, tensors = setup(**CASES[case])
    every = tuple(range(len(tensors)))

    def both(f):
        y, back = jax.vjp(f, *tensors)
        return y, back(jnp.cos(y)), jax.grad(lambda *given: (f(*given) ** 2).sum(), every)(*tensors)

    close(jax.jit(lambda: both(ours))(), jax.jit(lambda: both(theirs))(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", ["heads", "epilogue", "toeplitz, heads, a prefix", "band"])
def test_second_derivatives(case):
    ours, theirs, tensors = setup(**CASES[case], D=2)
    every = tuple(range(len(tensors)))

    def second(f):
        inner = jax.grad(lambda *given: (f(*given) ** 3).sum(), every)
        return jax.jit(jax.grad(lambda *given: sum(jnp.sin(one).sum() for one in inner(*given)), every))(*tensors)

    close(second(ours), second(theirs), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "axes, layout, of",
    [
        ((0, None, None), "btd", dict(taps=2)),
        ((1, None, None), "bdt", dict(taps=2)),
        ((1, 2, 1), "btd", dict(taps=2)),
        ((None, 0, None), "bdt", dict(taps=2)),
        ((0, None, 0), "btd", dict(taps=2)),
        ((0, None, None), "bdt", dict(form="toeplitz")),
        ((None, 1, None), "btd", dict(form="toeplitz")),
        ((1, 2, 0), "btd", dict(form="band", width=3)),
    ],
    ids=str,
)
def test_vmap_of_values_and_gradients(axes, layout, of):
    ours, _, (x, weight, bias) = setup(heads=2, bias=True, layout=layout, **of)
    given = [
        one if axis is None else jnp.stack([one, 2 * one, one - 1], axis) for one, axis in zip((x, weight, bias), axes)
    ]
    for f in (ours, jax.grad(lambda *given: (ours(*given) ** 2).sum(), (0, 1, 2))):
        got = jax.jit(jax.vmap(f, axes))(*given)
        alone = jax.jit(f)
        each = [
            alone(*(one if axis is None else jnp.take(one, i, axis) for one, axis in zip(given, axes)))
            for i in range(3)
        ]
        close(got, jax.tree.map(lambda *parts: jnp.stack(parts), *each), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype, wide", [(jnp.float16, False), (jnp.bfloat16, True)])
def test_short_types(dtype, wide):
    """Sums in float32, one rounding; float32 weights get float32 gradients."""
    ours, theirs, tensors = setup(taps=2, heads=2, bias=True, gate=True, activation="gelu", dtype=dtype)
    if wide:
        tensors[1:3] = [one.astype(jnp.float32) for one in tensors[1:3]]
    exact = [one.astype(jnp.float32) for one in tensors]
    every = tuple(range(len(tensors)))
    y, dy = jax.jit(
        lambda: (ours(*tensors), jax.grad(lambda *given: ours(*given).astype(jnp.float32).sum(), every)(*tensors))
    )()
    assert y.dtype == dtype and [one.dtype for one in dy] == [one.dtype for one in tensors]
    want = jax.jit(lambda: (theirs(*exact), jax.grad(lambda *given: theirs(*given).sum(), every)(*exact)))()
    close(jax.tree.map(lambda one: one.astype(jnp.float32), (y, dy)), want, rtol=5e-2, atol=8e-2)


def test_the_other_triangle_is_never_read_and_gets_no_gradient():
    x, weight = jnp.ones((2, 5, 3)), jnp.where(jnp.tril(jnp.ones((5, 5))) > 0, 2.0, jnp.nan)
    dw = jax.grad(lambda w: tj.triangular_conv1d(x, w).sum())(weight)
    assert (
        (jnp.triu(dw, 1) == 0).all()
        and (jnp.tril(dw) != 0).sum() == 15
        and bool(jnp.isfinite(tj.triangular_conv1d(x, weight)).all())
    )


def test_what_a_band_has_before_the_first_token_is_never_read_and_gets_no_gradient():
    x, before = jnp.ones((2, 5, 3)), jnp.arange(5)[:, None] + jnp.arange(3) < 2
    weight = jnp.where(before, jnp.nan, 2.0)
    y, dw = jax.value_and_grad(lambda w: tj.triangular_conv1d(x, w, form="band").sum())(weight)
    assert jnp.isfinite(y) and (dw[before] == 0).all() and (dw != 0).sum() == 12


def test_an_empty_batch_and_float64():
    weight = jnp.ones((4, 4, 1))
    dx, dw = jax.grad(lambda x, w: tj.triangular_conv1d(x, w).sum(), (0, 1))(jnp.zeros((0, 4, 3)), weight)
    assert dx.shape == (0, 4, 3) and not dw.any()
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        x = jnp.arange(24, dtype=jnp.float64).reshape(2, 4, 3)
        np.testing.assert_array_equal(tj.triangular_conv1d(x, jnp.ones((4, 4), jnp.float64)), np.cumsum(x, 1))


SHARDED = """
import jax, jax.numpy as jnp, numpy as np, trigen.jax as tj
from jax.sharding import Mesh, PartitionSpec as P
shard_map = getattr(jax, "shard_map", None) or jax.experimental.shard_map.shard_map
mesh = Mesh(np.array(jax.devices()), ("data",))
x, w, b = jax.random.normal(jax.random.key(0), (4, 6, 3)), jax.random.normal(jax.random.key(1), (6, 6, 2)), jnp.arange(6.0)
def loss(x, w, b):
    y = tj.triangular_conv1d(x, w, b, activation="gelu", residual=x)
    return (y ** 2).sum(keepdims=True).reshape(1)
def total(x, w, b):
    return shard_map(loss, mesh=mesh, in_specs=(P("data"), P(), P()), out_specs=P("data"))(x, w, b).sum()
got = jax.jit(jax.value_and_grad(total, (0, 1, 2)))(x, w, b)
want = jax.jit(jax.value_and_grad(lambda *a: loss(*a).sum(), (0, 1, 2)))(x, w, b)
assert len(jax.devices()) == 2
def same(got, want, tolerance=1e-4):
    jax.tree.map(lambda one, two: np.testing.assert_allclose(one, two, rtol=tolerance, atol=tolerance), got, want)
same(got, want)

def loss(x, v, decay):
    y = tj.scan(x, target=v, decay=decay, activation="gelu", residual=x)
    return (y ** 2).sum(keepdims=True).reshape(1)
vectors = w[0, :, 0], jnp.full((3, 1), 0.9)
got = jax.jit(jax.value_and_grad(total, (0, 1, 2)))(x, *vectors)
same(got, jax.jit(jax.value_and_grad(lambda *a: loss(*a).sum(), (0, 1, 2)))(x, *vectors))

specs = dict(in_specs=P("data"), out_specs=dict(batch=P("data"), shared=P()))
def directions(x):
    return tj.orthogonalize(dict(batch=x, shared=w[0]))
same(jax.jit(shard_map(directions, mesh=mesh, **specs))(x), directions(x), 1e-2)
print("same")
"""


def test_shard_map_over_two_devices(repository):
    """Each shard multiplies its part of the batch; the gradients of weights and vectors are summed over them."""
    done = subprocess.run(
        [sys.executable, "-c", SHARDED],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": str(repository / "python"),
            "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
            "JAX_PLATFORMS": "cpu",
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        },
    )
    assert done.stdout == "same\n", done.stdout + done.stderr


@pytest.mark.parametrize(
    "call, text",
    [
        (
            lambda x, w: tj.triangular_conv1d(x[0], w),
            r"x has shape \[4, 3\]; allowed: rank 3, \[batch, tokens, features\] \(layout=btd\); jax.vmap adds axes",
        ),
        (
            lambda x, w: tj.triangular_conv1d(x, w[:3, :3]),
            r"x has 4 tokens \(shape \[2, 4, 3\], layout=btd\) while weight has shape \[3, 3, 2\]; allowed: 1 to 3",
        ),
        (
            lambda x, w: tj.triangular_conv1d(x, w[:3]),
            r"weight has shape \[3, 4, 2\]: 3 output tokens and 4 input tokens; allowed: a square \[T, T\], \[T, T, K\] or",
        ),
        (lambda x, w: tj.triangular_conv1d(x, w, layout="dbt"), r"layout='dbt' is not known; allowed: btd, bdt"),
        (lambda x, w: tj.triangular_conv1d(x, w, padding=2), r"padding=2; allowed: 'same', 'causal' or 0 to K-1 = 1"),
        (
            lambda x, w: tj.triangular_conv1d(x, w.astype(jnp.bfloat16)),
            r"weight has dtype bfloat16 while x has float32; allowed beside it: float32",
        ),
        (
            lambda x, w: tj.triangular_conv1d(x.astype(int), w),
            r"x has dtype int32; allowed: float16, bfloat16, float32",
        ),
        (
            lambda x, w: tj.triangular_conv1d(x, w, jnp.ones(3)),
            r"bias has shape \[3\] and dtype float32; allowed: \[4\] of weight's dtype float32",
        ),
        (
            lambda x, w: tj.triangular_conv1d(x, w, gate=x[:1]),
            r"gate has shape \[1, 4, 3\] and dtype float32; allowed: x's \[2, 4, 3\] and float32",
        ),
        (
            lambda x, w: tj.triangular_conv1d(x, w, form="toeplitz"),
            r"weight has shape \[4, 4, 2\] with form='toeplitz'; allowed: \[T\] or \[heads, T\]",
        ),
        (
            lambda x, w: tj.triangular_conv1d(x, jnp.ones((4, 5)), form="band"),
            r"a band of 5 tokens while there are 4; allowed: a width of at most 4",
        ),
        (
            lambda x, w: tj.triangular_conv1d(x, jnp.ones(4), form="toeplitz", diagonal=1),
            r"diagonal=1 with form='toeplitz'; allowed: .* diagonal=0",
        ),
        (
            lambda x, w: tj.triangular_conv1d(x, w, form="ring"),
            r"form='ring' is not known; allowed: dense, toeplitz, band",
        ),
    ],
)
def test_messages(call, text):
    with pytest.raises((ValueError, TypeError), match=text):
        call(jnp.ones((2, 4, 3)), jnp.ones((4, 4, 2)))


def test_activations_are_named_once():
    with pytest.raises(ValueError, match=r"activation='relu' is not known; allowed: none, gelu, silu$"):
        tj.triangular_conv1d(jnp.ones((2, 4, 3)), jnp.ones((4, 4)), activation="relu")


def test_a_transposed_x_is_said_once(monkeypatch):
    monkeypatch.setattr(trigen.errors, "said", set())
    x, weight = jnp.ones((2, 16, 5)), jnp.ones((16, 16))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for right in (x, x[:, :3], jnp.ones((2, 16, 16))):
            tj.triangular_conv1d(right, weight)
        tj.triangular_conv1d(x.transpose(0, 2, 1), weight, layout="bdt")
    with pytest.warns(
        trigen.TrigenWarning,
        match=r"x has shape \[2, 5, 16\], taken as \[batch, tokens, features\] \(layout=btd\): a prefix of 5 of weight's 16 "
        r"tokens, with 16 features; .* give layout='bdt'",
    ) as said:
        for _ in range(2):
            jax.jit(lambda x: tj.triangular_conv1d(x, weight))(x.transpose(0, 2, 1))
    assert len(said) == 1


def test_forward_mode_is_refused_by_name():
    x, weight = jnp.ones((2, 4, 3)), jnp.ones((4, 4))
    with pytest.raises(TypeError, match="custom_vjp"):
        jax.jvp(lambda x: tj.triangular_conv1d(x, weight), (x,), (x,))


def test_what_is_recorded_is_what_a_gpu_is_asked():
    ours, _, tensors = setup(heads=2, taps=2, bias=True, gate=True, activation="silu", dtype=jnp.bfloat16)
    with trigen.record() as seen:
        jax.jit(jax.grad(lambda *given: ours(*given).astype(jnp.float32).sum(), (0, 1, 2)))(*tensors)
    sizes = "dtype=bf16,B=2,H=2,T=4,D=3,K=2,pad=0"
    assert seen.problems == [
        f"forward,{sizes},epilogue=bias+silu+pre+gate",
        f"grad_input,{sizes}",
        f"grad_weight,{sizes},epilogue=bias+zero_outside",
    ]
    for of, said, zeros in (
        (dict(form="toeplitz"), "w=toeplitz", ""),
        (dict(form="band", width=3), "w=band,width=3", ",epilogue=zero_outside"),
    ):
        ours, _, tensors = setup(dtype=jnp.bfloat16, **of)
        with trigen.record() as seen:
            jax.jit(jax.value_and_grad(lambda *given: ours(*given).astype(jnp.float32).sum(), (0, 1)))(*tensors)
        sizes = f"dtype=bf16,B=2,H=1,T=4,D=3,K=1,pad=0,{said}"
        assert seen.problems == [f"forward,{sizes}", f"grad_input,{sizes}", f"grad_weight,{sizes}{zeros}"]
    ours, _, tensors = setup()
    for precision, math in (("highest", ""), ("default", ",math=tf32")):
        with trigen.record() as seen, jax.default_matmul_precision(precision):
            jax.jit(lambda *given: ours(*given) + 0)(*tensors)
        assert seen.problems == [f"forward,dtype=f32,B=2,H=1,T=4,D=3,K=1,pad=0{math}"]


def test_the_benchmark_script_runs(repository):
    done = subprocess.run(
        [
            sys.executable,
            str(repository / "bench/jax_ops.py"),
            "--shapes",
            "2,16,8",
            "--parts",
            "forward,step,scan",
            "--dtype",
            "float32",
            "--rounds",
            "1",
            "--calls",
            "1",
        ],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": str(repository / "python"),
            "JAX_PLATFORMS": "cpu",
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        },
    )
    assert done.returncode == 0 and done.stdout.count('"arm": "trigen"') == 3, done.stdout + done.stderr
