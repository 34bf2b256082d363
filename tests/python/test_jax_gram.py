"""gram and orthogonalize of trigen.jax on JAX's CPU: numbers against double precision, transforms, messages, and an optimizer of optax's.
Kernels behind XLA: test_jax_handler.py."""

import functools

import numpy as np
import pytest

jax = pytest.importorskip("jax", "0.6", reason="[SKIP] jax 0.6 or later is not installed")

import jax.numpy as jnp
import trigen
import trigen.jax as tj
from trigen.jax import matrices, primitive

jax.config.update("jax_disable_most_optimizations", True)  # XLA compiles many times as fast
TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-6}


def normal(seed, *shape, dtype=jnp.float32):
    return jax.random.normal(jax.random.key(seed), shape).astype(dtype)


def far(one, two):
    one, two = (np.asarray(part, np.float64) for part in (one, two))
    return np.linalg.norm(one - two) / np.linalg.norm(two)


@pytest.mark.parametrize("fill", ["both", "lower", "upper"])
@pytest.mark.parametrize("dtype, out", [("float16", None), ("bfloat16", "float32"), ("float32", None)])
def test_gram(dtype, out, fill):
    a, c = normal(0, 2, 3, 17, 24, dtype=dtype), normal(1, 2, 3, 17, 17, dtype=out or dtype)
    c = ((c + c.mT) / 2).astype(c.dtype)
    d = tj.gram(a, c=c, alpha=-0.5, beta=2, gamma=3, fill=fill, dtype=out)
    exact = np.asarray(a, np.float64)
    want = -0.5 * exact @ exact.swapaxes(-1, -2) + 2 * np.asarray(c, np.float64) + 3 * np.eye(17)
    want = {"both": lambda w: w, "lower": np.tril, "upper": np.triu}[fill](want)
    assert d.dtype == jnp.dtype(out or dtype) and far(d, want) < TOLERANCE[out or dtype]
    assert fill != "both" or (d == d.mT).all()


def test_transforms():
    a, c = normal(0, 4, 9, 20), normal(1, 9, 9)
    c = c + c.T
    want = jnp.stack([tj.gram(one, c=c, beta=0.5) for one in a])
    for axis in (0, 1, 2):
        got = jax.jit(jax.vmap(lambda one: tj.gram(one, c=c, beta=0.5), axis))(jnp.moveaxis(a, 0, axis))
        np.testing.assert_allclose(got, want, rtol=1e-5)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
    spec = jax.sharding.PartitionSpec("data")
    shard_map = (
        getattr(jax, "shard_map", None) or __import__("jax.experimental.shard_map").experimental.shard_map.shard_map
    )
    sharded = shard_map(
        lambda a: tj.gram(a, c=c + jnp.zeros((len(a), 9, 9)), beta=0.5), mesh=mesh, in_specs=spec, out_specs=spec
    )
    np.testing.assert_allclose(jax.jit(sharded)(a), want, rtol=1e-5)
    assert (
        tj.gram(jnp.zeros((0, 3, 4))).shape == (0, 3, 3) and (tj.gram(jnp.zeros((3, 0)), gamma=1) == jnp.eye(3)).all()
    )
    assert bool(jnp.isfinite(tj.gram(a, c=jnp.full((4, 9, 9), jnp.nan), beta=0)).all())


def test_bad_input_is_refused_in_words():
    a = jnp.zeros((4, 6))
    for message, call in {
        r"a has shape \[6\]; allowed": lambda: tj.gram(a[0]),
        "D is square": lambda: tj.gram(a, a[:3]),
        "fill='all' is not known": lambda: tj.gram(a, fill="all"),
        r"c is float32 \[4, 6\]; allowed: float32 \[4, 4\]": lambda: tj.gram(a, c=a),
        "dtype=float16 with float32": lambda: tj.gram(a, dtype=jnp.float16),
        "a has dtype int32": lambda: tj.gram(a.astype(int)),
        "alpha=0 leaves nothing": lambda: tj.gram(a, alpha=0),
        "beta=2.0 without c": lambda: tj.gram(a, beta=2),
        "traced": lambda: jax.jit(lambda alpha: tj.gram(a, alpha=alpha))(1.0),
        "'trigen_gram' not implemented": lambda: jax.grad(lambda a: tj.gram(a).sum())(a),
        r"coefficients=\(1, 2\)": lambda: tj.orthogonalize(a, coefficients=(1, 2)),
        "form='fast' is not known; allowed: auto, classic, gram, one_launch": lambda: tj.orthogonalize(a, form="fast"),
        "form='quick' is not known": lambda: jax.eval_shape(lambda a: tj.orthogonalize(a, form="quick"), a),
        "form='one_launch' with 257 rows or columns, 5 steps; allowed": lambda: tj.orthogonalize(
            jnp.zeros((300, 257)), form="one_launch"
        ),
        "form='one_launch' with 4 rows or columns, 65 steps": lambda: tj.orthogonalize(a, steps=65, form="one_launch"),
        "'trigen_orthogonalize' not implemented": lambda: jax.grad(lambda a: tj.orthogonalize(a).sum())(a),
        r"matrix 1 is float32 \[6\]": lambda: tj.orthogonalize([a, a[0]]),
    }.items():
        with pytest.raises((ValueError, TypeError, NotImplementedError), match=message):
            call()


def test_what_is_recorded_is_what_a_gpu_is_asked():
    a = normal(0, 3, 16, 40, dtype=jnp.bfloat16)
    with trigen.record() as seen:
        jax.jit(
            lambda a: tj.gram(tj.gram(a), c=tj.gram(a, dtype=jnp.float32)[:, :16], dtype=jnp.float32, fill="upper")
        )(a)
        jax.jit(lambda a: tj.gram(a[0].astype(jnp.float32)))(a)
    assert seen.problems == [
        "gram,dtype=bf16,B=1,H=3,T=16,D=40,K=1,pad=0,epilogue=mirror",
        "gram,dtype=bf16,B=1,H=3,T=16,D=40,K=1,pad=0,wdtype=f32,epilogue=mirror",
        "gram,dtype=bf16,B=1,H=3,T=16,D=16,K=1,pad=0,fill=upper,wdtype=f32,epilogue=residual",
        "gram,dtype=f32,B=1,H=1,T=16,D=40,K=1,pad=0,math=tf32,epilogue=mirror",
    ]


def test_what_goes_in_one_launch_is_known_when_a_program_is_compiled():
    """Of a batch's dtype, way up and size, vmap's axis among it."""

    def asked(f, *given):
        with trigen.record() as seen:
            jax.jit(f).lower(*given)
        return seen.problems

    def of(*shape, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype)

    half = of(2, 16, 40, dtype=jnp.float16)
    assert asked(tj.orthogonalize, [half, half]) == ["newton_schulz,dtype=f16,B=4,H=1,T=16,D=40,K=5,pad=0"]
    assert asked(tj.orthogonalize, [of(40, 16), half, of(16, 16)]) == [
        "newton_schulz,dtype=f32,B=3,H=1,T=16,D=40,K=5,pad=0,layout=bdt",
        "newton_schulz,dtype=f32,B=1,H=1,T=16,D=16,K=5,pad=0",
    ]
    one = "newton_schulz,dtype=f32,B={},H=1,T=65,D=4100,K=5,pad=0"
    assert all(problem.startswith("gram,") for problem in asked(tj.orthogonalize, of(4, 65, 4100)))
    assert asked(jax.vmap(tj.orthogonalize), of(2, 4, 65, 4100)) == [one.format(8)]
    assert asked(lambda a: tj.orthogonalize(a, form="one_launch"), of(4, 65, 4100)) == [one.format(4)]
    for given, form, steps in (((129, 200), "auto", 5), ((16, 40), "gram", 5), ((16, 40), "auto", 65)):
        problems = asked(lambda a: tj.orthogonalize(a, form=form, steps=steps), of(*given))
        assert problems and all(problem.startswith("gram,") for problem in problems), (given, form, steps)
    turing, ampere = primitive.Device(0, False, False, False), primitive.Device(0, True, False, False)
    hopper, blackwell, large = primitive.Device(0, True, True, True), primitive.SOME_DEVICE, of(32, 129, 200)
    few = of(4, 65, 2048)
    for x, device, form, wanted in (
        (half, ampere, "auto", True),
        (few, ampere, "auto", False),
        (large, hopper, "auto", True),
        (large, blackwell, "auto", False),
        (of(31, 129, 200), hopper, "auto", False),
        (of(32, 129, 517), hopper, "auto", False),
        (half, turing, "auto", False),
        (half, turing, "one_launch", True),  # which the library refuses in words
    ):
        how = matrices.How((tj.JORDAN,), 1e-7, form)
        found = jax.make_jaxpr(functools.partial(matrices._iterations, how=how, device=device))(x)
        assert any(one.primitive is matrices.newton_schulz_p for one in found.eqns) is wanted, (x, device, form)


def iterate(matrix, triples):
    """Newton-Schulz in double precision."""
    x = np.asarray(matrix, np.float64)
    x = x / np.linalg.norm(x)
    x = x.T if x.shape[0] > x.shape[1] else x
    for a, b, c in triples:
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


@pytest.mark.parametrize("coefficients", [tj.JORDAN, tj.POLAR_EXPRESS])
@pytest.mark.parametrize("form", ["auto", "classic", "gram", "one_launch"])
def test_orthogonalize_of_a_tree(coefficients, form):
    tree = {"one": normal(0, 24, 64), "tall": [normal(1, 64, 24, dtype=jnp.bfloat16)], "batch": normal(2, 2, 2, 20, 20)}
    triples = [coefficients] * 5 if coefficients is tj.JORDAN else coefficients[:5]
    got = jax.jit(lambda tree: tj.orthogonalize(tree, coefficients=coefficients, form=form))(tree)
    assert jax.tree.structure(got) == jax.tree.structure(tree)
    for matrix, ours in zip(jax.tree.leaves(tree), jax.tree.leaves(got)):
        assert (ours.shape, ours.dtype) == (matrix.shape, matrix.dtype)
        for one, result in zip(matrix.reshape(-1, *matrix.shape[-2:]), ours.reshape(-1, *matrix.shape[-2:])):
            assert far(result, iterate(one, triples)) < 2e-2
    assert tj.orthogonalize(()) == ()
    alone = tj.orthogonalize(tree["one"], coefficients=coefficients, form=form)
    np.testing.assert_allclose(alone, got["one"], atol=1e-6)  # a batch changes no element's sum


def test_a_step_of_optax_is_that_of_its_own_muon():
    """The optimizer of docs/jax.md; without nesterov both see the same direction, as bias correction is a factor."""
    optax = pytest.importorskip("optax", reason="[SKIP] optax is not installed")
    params = {"w": normal(0, 24, 48), "b": jnp.zeros(48)}
    x = normal(1, 64, 24)

    def train(optimizer):
        p, state = params, optimizer.init(params)

        @jax.jit
        def step(p, state):
            loss, grads = jax.value_and_grad(lambda p: ((jax.nn.gelu(x @ p["w"] + p["b"]) - 1) ** 2).mean())(p)
            updates, state = optimizer.update(grads, state, p)
            return optax.apply_updates(p, updates), state, loss

        losses = []
        for _ in range(8):
            p, state, loss = step(p, state)
            losses.append(float(loss))
        return losses

    def scale(u):
        return u * max(1, u.shape[-1] / u.shape[-2]) ** 0.5

    muon = optax.chain(
        optax.trace(0.95),
        optax.stateless(lambda updates, _: jax.tree.map(scale, tj.orthogonalize(updates))),
        optax.scale_by_learning_rate(0.02),
    )
    kinds = lambda params: jax.tree.map(lambda p: "muon" if p.ndim == 2 else "adam", params)  # noqa: E731
    ours = train(optax.partition({"muon": muon, "adam": optax.adamw(0.02, weight_decay=0)}, kinds))
    theirs = train(optax.contrib.muon(0.02, nesterov=False))
    assert ours == pytest.approx(theirs, rel=1e-2) and ours[-1] < ours[0]
