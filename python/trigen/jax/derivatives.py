"""The three operations and their derivatives of every order, over the primitive: triangular_conv1d's product is bilinear, so that each one's
derivatives are the three again; scan's is not in its vectors, so that the derivatives of its gradients are those of lax operations."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from . import plain, primitive
from .primitive import Spec, product


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def mix(spec: Spec, x, weight, bias, gate, residual):
    """y of forward or scan; what is None is not there."""
    return product(spec, *_given(x, weight, bias, gate, residual))[0]


def _given(*arrays):
    return [array for array in arrays if array is not None]


def _mix_forward(spec, *primals):
    x, weight, bias, gate, residual = _values(primals)
    if spec.activation == "none" and not spec.gate:
        return mix(spec, x, weight, bias, gate, residual), (x, weight, None, None, _wanted(primals))
    y, pre = _mix_pre(spec._replace(pre=True), x, weight, bias, gate, residual)
    return y, (x, weight, gate, pre, _wanted(primals))


def _values(primals):
    return [one if one is None else one.value for one in primals]


def _wanted(primals):
    """Whose gradient is wanted, of x and of what a gradient of weights makes, as the structure of residuals: () or None each."""
    x, weight, bias, *_ = (one is not None and one.perturbed for one in primals)
    return () if x else None, () if weight or bias else None


def _mix_backward(spec, kept, dy):
    return _gradients(spec, *kept, dy, None)


mix.defvjp(_mix_forward, _mix_backward, symbolic_zeros=True)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _mix_pre(spec: Spec, x, weight, bias, gate, residual):
    """(y, the value before the activation)"""
    return tuple(product(spec, *_given(x, weight, bias, gate, residual)))


def _mix_pre_forward(spec, *primals):
    x, weight, bias, gate, residual = _values(primals)
    y, pre = _mix_pre(spec, x, weight, bias, gate, residual)
    return (y, pre), (x, weight, gate, pre, _wanted(primals))


def _mix_pre_backward(spec, kept, gradients):
    x = kept[0]
    dy, dpre = (jnp.zeros_like(x) if isinstance(one, SymbolicZero) else one for one in gradients)
    return _gradients(spec, *kept, dy, dpre)


_mix_pre.defvjp(_mix_pre_forward, _mix_pre_backward, symbolic_zeros=True)


def _gradients(spec, x, weight, gate, pre, wanted, dy, dpre):
    """Of x, weight, bias, gate and residual."""
    dq, dgate = dy, None
    if pre is not None:
        wide = plain.compute_dtype(x.dtype)
        value, back = jax.vjp(lambda q: plain.activate(q, spec.activation), pre.astype(wide))
        slope = dy.astype(wide)
        if gate is not None:
            dgate = (slope * value).astype(x.dtype)
            slope = slope * gate.astype(wide)
        (slope,) = back(slope)
        dq = (slope if dpre is None else slope + dpre.astype(wide)).astype(x.dtype)
    bare = spec._replace(activation="none", gate=False, residual=False, pre=False)
    if spec.is_scan:
        dx = dw = db = None
        if wanted[1] is None:
            (dx,) = _of_scan(bare._replace(op="scan_grad_input", bias=False), dq, weight)
        else:
            dw, *rest = _of_scan(bare._replace(op="scan_grad_weight", dx=wanted[0] is not None), dq, x, weight)
            db = rest[0] if spec.bias else None
            dx = rest[-1] if wanted[0] is not None else None
        return dx, dw, db, dgate, dy if spec.residual else None
    dx = _grad_input(bare._replace(op="grad_input", bias=False), dq, weight)
    dw, db = _grad_weight(bare._replace(op="grad_weight"), dq, x)
    return dx, dw, db, dgate, dy if spec.residual else None


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _grad_input(spec: Spec, grad, weight):
    return product(spec, grad, weight)[0]


def _grad_input_backward(spec, kept, ddx):
    grad, weight = kept
    return _product(spec, ddx, weight), _grad_weight(spec._replace(op="grad_weight"), grad, ddx)[0]


_grad_input.defvjp(lambda spec, grad, weight: (_grad_input(spec, grad, weight), (grad, weight)), _grad_input_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _grad_weight(spec: Spec, grad, x):
    """(dW, grad_bias or None)"""
    results = product(spec, grad, x)
    return results[0], results[1] if spec.bias else None


def _grad_weight_backward(spec, kept, gradients):
    (grad, x), (ddw, ddb) = kept, gradients
    dgrad = _product(spec, x, ddw)
    if ddb is not None:
        dgrad = dgrad + _spread(ddb, x, spec)
    return dgrad, _grad_input(spec._replace(op="grad_input", bias=False), grad, ddw)


_grad_weight.defvjp(lambda spec, grad, x: (_grad_weight(spec, grad, x), (grad, x)), _grad_weight_backward)


def _product(spec, x, weight):
    return mix(spec._replace(op="forward", bias=False), x, weight, None, None, None)


def _spread(bias, x, spec):
    """bias[h, t] at every batch and feature of x."""
    features = x.shape[2 if spec.layout == "btd" else 1] // spec.heads
    wide = jnp.repeat(bias.astype(x.dtype), features, axis=0)  # [H*D, n]
    return jnp.broadcast_to((wide.T if spec.layout == "btd" else wide)[None], x.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _of_scan(spec: Spec, *operands):
    """The results of scan_grad_input or scan_grad_weight."""
    return product(spec, *operands)


def _of_scan_backward(spec, kept, gradients):
    _, back = jax.vjp(functools.partial(primitive.plain_results, spec=spec), *kept)
    return back(gradients)


_of_scan.defvjp(lambda spec, *operands: (_of_scan(spec, *operands), operands), _of_scan_backward)
