"""Symmetric products and what is made of them: gram, orthogonalize. A primitive each; gradients are not there."""

from __future__ import annotations

import functools
from math import prod
from typing import Any, NamedTuple, Optional, Sequence, Tuple, Union

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from .. import problem as problem_text
from ..newton_schulz import JORDAN, Triple, iterate, may_be_one_launch, numbers_of, suits_one_launch, triples_of
from ..options import Math
from . import handler, plain, primitive
from .functional import _DTYPES, _check_dtype, _one_of, _resolve_math, _same_axes
from .primitive import NAME, vary, varying


class Spec(NamedTuple):
    """Parameters that are no arrays. Operands: a, b [n, m, k], then c [n, m, m] where there is one."""

    alpha: float
    beta: float
    gamma: float
    fill: str
    math: str  # as primitive.Spec's
    dtype: str  # of c and the result


gram_p = Primitive("trigen_gram")


@gram_p.def_abstract_eval
def _shape(a, b, c=None, *, spec: Spec):
    return ShapedArray((*a.shape[:-1], a.shape[-2]), jnp.dtype(spec.dtype))


_jitted = jax.jit(lambda *operands, spec: gram_p.bind(*operands, spec=spec), static_argnames="spec")
gram_p.def_impl(lambda *operands, spec: _jitted(*operands, spec=spec))


def _batched(operands, axes, *, spec: Spec):
    size = next(one.shape[axis] for one, axis in zip(operands, axes) if axis is not None)
    moved = [
        jnp.broadcast_to(one, (size, *one.shape)) if axis is None else jnp.moveaxis(one, axis, 0)
        for one, axis in zip(operands, axes)
    ]
    d = gram_p.bind(*(one.reshape(size * one.shape[1], *one.shape[2:]) for one in moved), spec=spec)
    return d.reshape(size, moved[0].shape[1], *d.shape[1:]), 0


batching.primitive_batchers[gram_p] = _batched


def problem_of(spec: Spec, a, has_c: bool, has_tf32: bool = True) -> str:
    """The canonical text; "" where no kernel takes it."""
    if a.dtype.name not in NAME or 0 in a.shape:
        return ""
    n, m, k = a.shape
    return problem_text.text(
        "gram",
        NAME[a.dtype.name],
        1,
        n,
        m,
        k,
        1,
        0,
        fill="upper" if spec.fill == "upper" else "lower",
        wdtype=NAME[spec.dtype],
        math=spec.math if spec.math != "tf32 where it is" else "tf32" if has_tf32 else "simt",
        epilogue=("residual" if has_c else "", "mirror" if spec.fill == "both" else ""),
    )


def _plain(a, b, c=None, *, spec: Spec):
    return plain.gram(a, b, c, **{key: value for key, value in spec._asdict().items() if key != "math"})


_lower_plain = mlir.lower_fun(_plain, multiple_results=False)


def _lower_elsewhere(ctx, *operands, spec: Spec):
    primitive.record(problem_of(spec, ctx.avals_in[0], len(operands) == 3))
    return _lower_plain(ctx, *operands, spec=spec)


def lower_call(ctx, *operands, spec: Spec):
    text = problem_of(spec, ctx.avals_in[0], len(operands) == 3, primitive.device().has_tf32)
    if not text:
        return _lower_plain(ctx, *operands, spec=spec)
    factors = {name: np.float32(getattr(spec, name)) for name in ("alpha", "beta", "gamma")}
    return primitive.call(ctx, operands, text, **factors)


mlir.register_lowering(gram_p, _lower_elsewhere)
mlir.register_lowering(gram_p, lower_call, platform="cuda")


# ---- the public forms ----------------------------------------------------------------------------------------------------


def gram(
    a: jax.typing.ArrayLike,
    b: Optional[jax.typing.ArrayLike] = None,
    c: Optional[jax.typing.ArrayLike] = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    gamma: float = 0.0,
    fill: str = "both",
    math: Math = "default",
    dtype: Optional[jax.typing.DTypeLike] = None,
) -> jax.Array:
    """D = alpha A B^T + beta C + gamma I [..., m, m], where D is symmetric: half of the products of a matrix product.

    a      [..., m, k], float16, bfloat16, float32 (or float64, without a kernel); leading axes are a batch of matrices
    b      like a; left out, it is a. Another b is a promise that A B^T is symmetric, which is not checked
    c      [..., m, m] of the result's dtype, symmetric; not read with beta=0
    alpha, beta, gamma   numbers, not traced ones; the same kernel serves all of them. alpha is not 0
    fill   "both" triangles, bitwise symmetric, or "lower" or "upper" with zeros in the other one
    math   of float32, as in triangular_conv1d
    dtype  a's, or float32

    jax.jit, jax.vmap and jax.shard_map as triangular_conv1d. There is no derivative: JAX refuses one by name."""
    _one_of("fill", fill, ("both", "lower", "upper"))
    a = jnp.asarray(a)
    b, c = a if b is None else jnp.asarray(b), None if c is None else jnp.asarray(c)
    out = a.dtype if dtype is None else jnp.dtype(dtype)
    _check(a, b, c, out)
    alpha, beta, gamma = float(alpha), float(beta), float(gamma)
    if alpha == 0:
        raise ValueError("alpha=0 leaves nothing to multiply; allowed: any other number")
    if c is None and beta not in (0, 1):
        raise ValueError(f"beta={beta} without c; allowed: c, which it multiplies, or no beta")
    beta = 1.0 if c is None else beta
    spec = Spec(alpha, beta, gamma, fill, _resolve_math(math, a.dtype), out.name)
    n = prod(a.shape[:-2])
    given = [one.reshape(n, *one.shape[-2:]) for one in _same_axes([a, b, c]) if one is not None]
    d = vary(gram_p.bind(*given, spec=spec), varying(given[0])).reshape(*a.shape[:-1], a.shape[-2])
    return d if fill == "both" else jnp.where(plain.triangle(d.shape[-1], fill, 0), d, 0)


def _check(a, b, c, out) -> None:
    if a.ndim < 2:
        raise ValueError(f"a has shape {list(a.shape)}; allowed: [..., m, k], two axes at least")
    _check_dtype("a", a)
    if (b.shape, b.dtype) != (a.shape, a.dtype):
        raise ValueError(
            f"b is {b.dtype.name} {list(b.shape)}; allowed: a's {a.dtype.name} {list(a.shape)}, D is square"
        )
    if out != a.dtype and (out != jnp.float32 or a.dtype.itemsize != 2):
        raise ValueError(f"dtype={out.name} with {a.dtype.name}; allowed: {a.dtype.name}, or float32 for 16-bit data")
    square = (*a.shape[:-1], a.shape[-2])
    if c is not None and (c.shape, c.dtype) != (square, out):
        raise ValueError(f"c is {c.dtype.name} {list(c.shape)}; allowed: {out.name} {list(square)}")


def orthogonalize(
    matrices: Any,
    *,
    steps: int = 5,
    coefficients: Union[Triple, Sequence[Triple]] = JORDAN,
    eps: float = 1e-7,
    form: str = "auto",
) -> Any:
    """Each matrix of a tree with its singular values brought near 1: `steps` Newton-Schulz iterations from X / max(|X|, eps), Frobenius norm.

    matrices      an array [..., m, k], or any tree of such; leading axes are a batch. Matrices of equal sides (up to transposition) are
                  computed together, whatever arrays they come from
    coefficients  (a, b, c) for every step, or one triple a step, of which the last is repeated
    form          "one_launch", all steps of at most 128 rows or columns (from Ampere on; on Hopper 256), "classic", "gram", or "auto": one launch
                  where that is faster, so not of a few with thousands of columns; of the others gram where the longer side is 1.25 times
                  the shorter one

    The same tree, shapes and dtypes; between products matrices are float16. jax.jit, jax.vmap and jax.shard_map; no derivative. While JAX
    compiles it for a GPU, kernels that the cache lacks are compiled side by side, one thread a core at most."""
    leaves, tree = jax.tree.flatten(matrices)
    leaves = [jnp.asarray(one) for one in leaves]
    triples = tuple(triples_of(coefficients, steps))
    results, groups = list(leaves), {}
    for index, one in enumerate(leaves):
        if one.ndim < 2 or one.dtype.name not in _DTYPES:
            raise ValueError(f"matrix {index} is {one.dtype.name} {list(one.shape)}; allowed: floating [..., m, k]")
        if one.size:
            groups.setdefault((*sorted(one.shape[-2:]), one.dtype == jnp.float64), []).append(index)
    stacks = []
    how = How(triples, float(eps), form)
    for (m, _, double), members in groups.items():
        given = [leaves[index] for index in members]
        whole = may_be_one_launch(m, steps, form, double)
        stacks.append(_as_they_come(given) if whole else _normalized(given, how, double))
    for members, x, y in zip(groups.values(), stacks, iterations_p.bind(*stacks, how=how)):
        y, first = vary(y, varying(x)), 0
        for index in members:
            one = leaves[index]
            count = prod(one.shape[:-2])
            part, first = y[first : first + count], first + count
            part = part.mT if _is_tall(part) != _is_tall(one) else part
            results[index] = part.reshape(one.shape).astype(one.dtype)
    return jax.tree.unflatten(tree, results)


class How(NamedTuple):
    triples: Tuple[Triple, ...]
    eps: float
    form: str


def _is_tall(one) -> bool:
    return one.shape[-2] > one.shape[-1]


def _as_they_come(given):
    """[n, rows, columns] of one dtype and way up, the first one's."""
    dtypes = {one.dtype for one in given}
    dtype = dtypes.pop() if len(dtypes) == 1 else jnp.float32
    turned = (one.mT if _is_tall(one) != _is_tall(given[0]) else one for one in given)
    parts = [one.astype(dtype).reshape(-1, *one.shape[-2:]) for one in turned]
    return jnp.concatenate(_same_axes(parts))


def _normalized(given, how: How, double: bool = False):
    """[n, m, k], m <= k, divided by their norms."""
    wide, short = (jnp.float64, jnp.float64) if double else (jnp.float32, jnp.float16)
    parts = []
    for one in given:
        one = one.astype(wide)
        one = one / jnp.maximum(jnp.linalg.norm(one, axis=(-2, -1), keepdims=True), how.eps)
        one = one.mT if _is_tall(one) else one
        parts.append(one.reshape(-1, *one.shape[-2:]).astype(short))
    return jnp.concatenate(_same_axes(parts))


def _by_products(x, how: How, product):
    """The iterations of what _as_they_come gave."""
    y = iterate(_normalized([x], how), how.triples, how.form, product)
    return (y.mT if _is_tall(x) else y).astype(x.dtype)


# ---- all steps in one launch -------------------------------------------------------------------------------------------------

newton_schulz_p = Primitive(
    "trigen_newton_schulz"
)  # of a stack [n, rows, columns]; bound while the iterations are lowered
newton_schulz_p.def_abstract_eval(lambda x, *, how: ShapedArray(x.shape, x.dtype))


def _steps_problem_of(how: How, x) -> str:
    n, *sides = x.shape
    layout = "bdt" if _is_tall(x) else "btd"
    return problem_text.text(
        "newton_schulz", NAME[x.dtype.name], n, 1, *sorted(sides), len(how.triples), 0, layout=layout
    )


def _plain_gram(a, b=None, c=None, *, alpha=1.0, beta=1.0, gamma=0.0):
    b = a if b is None else b
    return plain.gram(a, b, c, alpha=alpha, beta=beta, gamma=gamma, fill="both", dtype=a.dtype)


_lower_steps_plainly = mlir.lower_fun(lambda x, *, how: _by_products(x, how, _plain_gram), multiple_results=False)


def lower_steps_elsewhere(ctx, x, *, how: How):
    primitive.record(_steps_problem_of(how, ctx.avals_in[0]))
    return _lower_steps_plainly(ctx, x, how=how)


def lower_steps(ctx, x, *, how: How):
    numbers = np.array(numbers_of(how.triples, how.eps), np.float32)
    given = ctx.replace(avals_in=[*ctx.avals_in, ShapedArray(numbers.shape, numbers.dtype)])
    return primitive.call(given, (x, mlir.ir_constant(numbers)), _steps_problem_of(how, ctx.avals_in[0]))


mlir.register_lowering(newton_schulz_p, lower_steps_elsewhere)
mlir.register_lowering(newton_schulz_p, lower_steps, platform="cuda")


# ---- the iterations: a primitive, so that all plans are made side by side, for the batches that vmap leaves --------------------

iterations_p = Primitive(
    "trigen_orthogonalize"
)  # of stacks: what _as_they_come gave where one launch may be, else _normalized
iterations_p.multiple_results = True


@functools.partial(jax.jit, static_argnames="how")
def _jitted_iterations(*stacks, how):
    return iterations_p.bind(*stacks, how=how)


iterations_p.def_impl(lambda *stacks, how: _jitted_iterations(*stacks, how=how))
iterations_p.def_abstract_eval(lambda *stacks, **how: [ShapedArray(one.shape, one.dtype) for one in stacks])


def _batched_iterations(stacks, axes, **how):
    moved = [one if axis is None else jnp.moveaxis(one, axis, 0) for one, axis in zip(stacks, axes)]
    results = iterations_p.bind(*(one.reshape(-1, *one.shape[-2:]) for one in moved), **how)
    batched = [batching.not_mapped if axis is None else 0 for axis in axes]
    return [result.reshape(one.shape) for result, one in zip(results, moved)], batched


batching.primitive_batchers[iterations_p] = _batched_iterations


def _iterations(*stacks, how: How, device: primitive.Device = primitive.SOME_DEVICE):
    results = []
    for x in stacks:
        m, k = sorted(x.shape[-2:])
        suits = device.has_tf32 and suits_one_launch(len(x), m, k, device.has_clusters, device.is_hopper)
        if not may_be_one_launch(m, len(how.triples), how.form, x.dtype == jnp.float64):
            results.append(iterate(x, how.triples, how.form, gram))
        elif suits or how.form == "one_launch":
            results.append(newton_schulz_p.bind(x, how=how))
        else:
            results.append(_by_products(x, how, gram))
    return results


lower_iterations_elsewhere = mlir.lower_fun(_iterations, multiple_results=True)


def lower_iterations(ctx, *stacks, how: How):
    device = primitive.device()
    iterations = functools.partial(_iterations, how=how, device=device)
    shapes = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in ctx.avals_in]
    problems = []
    for one in jax.make_jaxpr(iterations)(*shapes).eqns:
        x = one.invars[0].aval if one.invars else None
        if one.primitive is gram_p:
            problems.append(problem_of(one.params["spec"], x, len(one.invars) == 3, device.has_tf32))
        elif one.primitive is newton_schulz_p:
            problems.append(_steps_problem_of(how, x))
    handler.make_ahead(filter(None, problems), device.ordinal)
    return mlir.lower_fun(iterations, multiple_results=True)(ctx, *stacks)


mlir.register_lowering(iterations_p, lower_iterations_elsewhere)
mlir.register_lowering(iterations_p, lower_iterations, platform="cuda")
