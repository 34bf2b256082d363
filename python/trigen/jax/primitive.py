"""One primitive of JAX's for the products with weights, and with the vectors of scan: shapes, batching, and how it is compiled: on CUDA a
call of libtrigen.so's handler with the problem as text, elsewhere plain lax operations. Derivatives are derivatives.py's."""

from __future__ import annotations

import functools
from typing import FrozenSet, NamedTuple, Tuple

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from .. import problem as problem_text
from .. import recording
from . import handler, plain, recurrence

NAME = {"float16": "f16", "bfloat16": "bf16", "float32": "f32"}


class Spec(NamedTuple):
    """Parameters of an op that are no arrays. Buffers, in order: forward x, weight, bias?, gate?, residual? -> y, pre?;
    grad_input grad, weight -> dx; grad_weight grad, x -> dW, grad_bias?. Shapes: plain.py. scan and its two gradients are as these, with
    vectors for a weight, of which scan_grad_weight has a third operand, and dx? for a last result: recurrence.py."""

    op: str
    heads: int
    taps: int
    pad: int
    layout: str
    fill: str
    diag: int
    math: (
        str  # "default" of 16-bit data; of float32 "simt", "f16x3", "tf32" or "tf32 where it is": on a GPU that has it
    )
    weight_dtype: str
    activation: str = "none"
    bias: bool = False
    gate: bool = False
    residual: bool = False
    pre: bool = False
    form: str = "dense"
    width: int = 0  # of a band
    dx: bool = False  # scan_grad_weight

    @property
    def is_scan(self) -> bool:
        return self.op.startswith("scan")

    @property
    def makes_weight(self) -> bool:
        return self.op.endswith("grad_weight")

    def weight_size(self, n: int) -> Tuple[int, ...]:
        """Of one head, for n tokens."""
        if self.is_scan:
            return 4, n
        return {"dense": (n, n, self.taps), "toeplitz": (n,), "band": (n, self.width)}[self.form]

    @property
    def operands(self) -> Tuple[str, ...]:
        """The kind of each operand."""
        if self.makes_weight:
            return ("activation", "activation") + ("weight",) * self.is_scan
        return ("activation", "weight") + ("bias",) * self.bias + ("activation",) * (self.gate + self.residual)

    @property
    def results(self) -> Tuple[str, ...]:
        if self.makes_weight:
            return ("weight",) + ("bias",) * self.bias + ("activation",) * self.dx
        return ("activation",) * (1 + self.pre)


def problem_of(spec: Spec, x, has_tf32: bool = True) -> str:
    """The canonical text for x, any of the activations; "" where no kernel takes it."""
    batch, n, features = x.shape if spec.layout == "btd" else (x.shape[0], x.shape[2], x.shape[1])
    diag = problem_text.effective_diagonal(spec.fill, spec.diag, n)
    if x.dtype.name not in NAME or spec.weight_dtype not in NAME or diag is None or batch == 0:
        return ""
    math = spec.math if spec.math != "tf32 where it is" else "tf32" if has_tf32 else "simt"
    epilogue = (
        "bias" if spec.bias else "",
        spec.activation if spec.activation != "none" else "",
        "pre" if spec.pre else "",
        "gate" if spec.gate else "",
        "residual" if spec.residual else "",
        "zero_outside" if spec.op == "grad_weight" and spec.form != "toeplitz" else "",
        "grad_input" if spec.dx else "",
    )
    return problem_text.text(
        spec.op,
        NAME[x.dtype.name],
        batch,
        spec.heads,
        n,
        features // spec.heads,
        spec.taps,
        spec.pad,
        layout=spec.layout,
        fill=spec.fill,
        diag=diag,
        wdtype=NAME[spec.weight_dtype],
        math=math,
        epilogue=epilogue,
        form=spec.form,
        width=spec.width,
    )


def plain_results(*operands, spec: Spec):
    """The results in lax operations."""
    of, common = (
        (recurrence, {})
        if spec.is_scan
        else (plain, dict(pad=spec.pad, fill=spec.fill, diag=spec.diag, form=spec.form))
    )
    common["layout"] = spec.layout
    if spec.makes_weight:
        if not spec.is_scan:
            common.update(heads=spec.heads, taps=spec.taps, width=spec.width, weight_dtype=spec.weight_dtype)
        results = list(of.grad_weight(*operands, **common))[: 1 + spec.bias]
        if spec.dx:
            grad, _, w = operands
            results.append(of.grad_input(grad, w, **common))
        return results
    if spec.op.endswith("grad_input"):
        return [of.grad_input(*operands, **common)]
    given = iter(operands[2:])
    extras = [next(given) if there else None for there in (spec.bias, spec.gate, spec.residual)]
    return list(of.forward(*operands[:2], *extras, activation=spec.activation, **common))[: 1 + spec.pre]


# ---- the primitive -------------------------------------------------------------------------------------------------------

product_p = Primitive("trigen_product")
product_p.multiple_results = True


@functools.partial(jax.jit, static_argnames="spec")
def _jitted(*operands, spec):
    return product_p.bind(*operands, spec=spec)


product_p.def_impl(lambda *operands, spec: _jitted(*operands, spec=spec))


@product_p.def_abstract_eval
def _shapes(first, *others, spec: Spec):
    n = first.shape[1 if spec.layout == "btd" else 2]
    kinds = {
        "activation": (first.shape, first.dtype),
        "weight": ((spec.heads, *spec.weight_size(n)), jnp.dtype(spec.weight_dtype)),
        "bias": ((spec.heads, n), jnp.dtype(spec.weight_dtype)),
    }
    return [ShapedArray(*kinds[kind]) for kind in spec.results]


def varying(array) -> FrozenSet[str]:
    """The axes of a shard_map along which the shards' arrays differ; JAX has moved that about."""
    kind = jax.typeof(array)
    return frozenset(getattr(kind, "vma", None) or getattr(getattr(kind, "mat", None), "varying", None) or ())


def vary(array, axes: FrozenSet[str]):
    """The same array, said to differ along these axes, too."""
    more = tuple(sorted(axes - varying(array)))
    if not more:
        return array
    return jax.lax.pcast(array, more, to="varying") if hasattr(jax.lax, "pcast") else jax.lax.pvary(array, more)


def product(spec: Spec, *operands):
    """The results of spec's operation."""
    axes = frozenset().union(*(varying(one) for one in operands))
    return [vary(one, axes) for one in product_p.bind(*operands, spec=spec)]


# ---- batching: an axis more of the batch where the weight is shared, of the heads where each example has its own ---------------


def _into_batch(array, kind, spec):
    return array.reshape(-1, *array.shape[2:]) if kind == "activation" else array


def _out_of_batch(array, kind, spec, size):
    return array.reshape(size, -1, *array.shape[1:])


def _into_heads(array, kind, spec):
    if kind == "activation":
        array = jnp.moveaxis(array, 0, 2 if spec.layout == "btd" else 1)
        shape = array.shape[:2] + (-1,) if spec.layout == "btd" else (array.shape[0], -1, array.shape[3])
        return array.reshape(shape)
    return array.reshape(-1, *array.shape[2:])


def _out_of_heads(array, kind, spec, size):
    if kind == "activation" and spec.layout == "btd":
        return jnp.moveaxis(array.reshape(*array.shape[:2], size, -1), 2, 0)
    if kind == "activation":
        return jnp.moveaxis(array.reshape(array.shape[0], size, -1, array.shape[2]), 1, 0)
    return array.reshape(size, -1, *array.shape[1:])


def _batched(operands, axes, *, spec: Spec):
    size = next(one.shape[axis] for one, axis in zip(operands, axes) if axis is not None)
    shared = not spec.makes_weight and all(
        axis is None for axis, kind in zip(axes, spec.operands) if kind != "activation"
    )
    into, out_of = (_into_batch, _out_of_batch) if shared else (_into_heads, _out_of_heads)
    given = []
    for one, axis, kind in zip(operands, axes, spec.operands):
        if axis is None and not (shared and kind != "activation"):
            one = jnp.broadcast_to(one, (size, *one.shape))
        elif axis is not None:
            one = jnp.moveaxis(one, axis, 0)
        given.append(into(one, kind, spec))
    wide = spec if shared else spec._replace(heads=spec.heads * size)
    results = product(wide, *given)
    return [out_of(one, kind, spec, size) for one, kind in zip(results, spec.results)], [0] * len(results)


batching.primitive_batchers[product_p] = _batched


# ---- compiling -----------------------------------------------------------------------------------------------------------

_lower_plain = mlir.lower_fun(plain_results, multiple_results=True)


def _lower_elsewhere(ctx, *operands, spec: Spec):
    record(problem_of(spec, ctx.avals_in[0]))
    return _lower_plain(ctx, *operands, spec=spec)


def record(text: str) -> None:
    if text and recording.active is not None:
        recording.active.add(text)


class Device(NamedTuple):
    ordinal: int  # CUDA's
    has_tf32: bool  # Ampere and later
    has_clusters: bool  # Hopper and later
    is_hopper: bool


SOME_DEVICE = Device(0, True, True, False)  # of a machine that is not here


@functools.lru_cache(maxsize=None)
def device() -> Device:
    """The GPU that plans are made on while a program is compiled: the first local one."""
    try:
        device = jax.local_devices(backend="cuda")[0]
    except RuntimeError:
        return SOME_DEVICE
    capability = float(device.compute_capability)
    return Device(device.local_hardware_id or 0, capability >= 8, capability >= 9, int(capability) == 9)


def lower_call(ctx, *operands, spec: Spec):
    text = problem_of(spec, ctx.avals_in[0], device().has_tf32)
    return call(ctx, operands, text) if text else _lower_plain(ctx, *operands, spec=spec)


def call(ctx, operands, text: str, **attributes):
    """The handler's call, with a workspace of the size that the plan on this machine needs."""
    record(text)
    handler.register()
    workspace = ShapedArray((handler.workspace_size(text, device().ordinal),), jnp.uint8)
    lowered = jax.ffi.ffi_lowering(handler.NAME)(
        ctx.replace(avals_out=[*ctx.avals_out, workspace]), *operands, problem=text, **attributes
    )
    return lowered[:-1]


mlir.register_lowering(product_p, _lower_elsewhere)
mlir.register_lowering(product_p, lower_call, platform="cuda")
