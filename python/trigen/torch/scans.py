"""Token mixers whose W is a few vectors: scan, its operators trigen::scan, trigen::scan_grad_input and trigen::scan_grad_weight, and decoding
with one state in place of a cache of tokens.

    scan(x, w, bias?, gate?, residual?, layout, activation, pre) -> (y, pre)     pre is empty unless asked for
    scan_grad_input(grad, w, layout)                             -> dx           dx = W^T grad
    scan_grad_weight(grad, x, w, bias, layout)                   -> (dw, dbias)  dbias is empty unless asked for

The operators take the vectors as one tensor w [H, 4, n] (source, target, decay, diagonal; float32, or x's dtype), bias [H, n] of w's dtype.
The functional form makes it of what it is given by differentiable torch, so that broadcasting, clipping and powers have their gradients.
The derivative is Scan's; derivatives of it are made in plain torch (recurrence.py).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Dict, Optional, Tuple, Union

import torch

from .. import errors, recording
from ..options import Activation, Layout
from . import arguments, cuda, launch, ops, plain, problems, recurrence, transforms
from .arguments import Sizes

Vector = Union[torch.Tensor, float, None]

_NAMES = ("source", "target", "decay", "diagonal")


def scan(
    x: torch.Tensor,
    source: Vector = None,
    target: Vector = None,
    decay: Vector = None,
    diagonal: Vector = None,
    bias: Optional[torch.Tensor] = None,
    *,
    gate: Optional[torch.Tensor] = None,
    residual: Optional[torch.Tensor] = None,
    layout: Layout = "btd",
    activation: Optional[Activation] = None,
) -> torch.Tensor:
    """y[b,h,t,d] = act(bias[h,t] + sum over s <= t of W[h,t,s] x[b,h,s,d]) * gate + residual, for a W that is vectors:

    W[h,t,s] = target[h,t] decay[h,t] decay[h,t-1] ... decay[h,s+1] source[h,s] for s < t,   W[h,t,t] = diagonal[h,t]

    x          [B, n, H*D] (layout "btd") or [B, H*D, n] ("bdt"), n <= T: a prefix uses the vectors' first n elements
    source, target, decay, diagonal   [T], [H, T], or what broadcasts to that: a number, [H, 1]; decay also [H], beside others that have H
               rows. Left out, the first three are ones and diagonal is source * target. decay[0] does not count
    bias       [T] or [H, T]
    gate, residual   like x
    activation None, "gelu" (exact) or "silu"

    dtypes: float16, bfloat16, float32 (x, gate, residual, y), float64 in plain torch; vectors and bias of any floating dtype: they are
    computed with in float32 (float64 beside float64), as the recurrence is, and rounded to nothing shorter. Under autocast x, gate and
    residual are cast, the vectors are not. Returns y, contiguous, like x.
    Differentiable in every tensor; second derivatives, forward mode and torch.func run in plain torch. On a CPU, and where set_fallback says
    so, plain torch computes all of it, without a matrix of T x T.
    Errors: ValueError, TypeError (arguments); trigen.TrigenError (libtrigen). Runs on the current stream of x's device and does not
    synchronise.
    """
    arguments.check_tensor(x, "x")
    name = activation or "none"
    if layout not in arguments.LAYOUTS:
        arguments.check_options(0, layout, "lower", name, "default", 1)
    w, bias = _operands(x, layout, source, target, decay, diagonal, bias)
    device = "cuda" if x.is_cuda else "cpu"
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        x, w, bias, gate, residual = ops.autocast_tensors(dtype, x, w, bias, gate, residual)
    tensors = x, w, bias, gate, residual
    if torch.compiler.is_compiling():
        return _scan(*tensors, layout, name)[0]
    if transforms.wanted():
        return _differentiable.run(*tensors, layout, name, False)[0]
    if not ops.direct(x, w):
        return _scan(*tensors, layout, name)[0]
    run = kernels_of(x).run
    if ops.recorded(*tensors):
        return _apply(*tensors, layout, name, run)
    return run(*tensors, layout, name, False)[0]


# ---- the vectors -----------------------------------------------------------------------------------------------------------


def _rows(x, vectors: Dict[str, Vector]) -> Tuple[Dict[str, torch.Tensor], int, int]:
    """(each vector that is there as [H or 1, T or 1], H, T). T is 1 where none has more."""
    shaped: Dict[str, torch.Tensor] = {}
    heads = tokens = 1
    of_heads: Optional[torch.Tensor] = None  # a decay of one axis, which the others' shapes name
    for name, value in vectors.items():
        if value is None:
            continue
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = torch.full((), value, dtype=torch.float32 if x.dtype != torch.float64 else x.dtype, device=x.device)
        if not isinstance(value, torch.Tensor) or value.dim() > 2 or not value.is_floating_point():
            found = f"{value.dtype} {list(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)
            raise ValueError(
                f"{name} is {found}; allowed: a number, or a floating tensor [T], [heads, T] or [heads, 1]"
            )
        arguments.check_device(name, value, x)
        if name == "decay" and value.dim() == 1 and value.shape[0] > 1:
            of_heads = value
            continue
        shaped[name] = value = value.reshape(1, -1) if value.dim() < 2 else value
        heads = _agree(name, value, 0, heads, "heads")
        tokens = _agree(name, value, 1, tokens, "tokens")
    if of_heads is not None:
        size = of_heads.shape[0]
        if size == heads and size == tokens:
            raise ValueError(
                f"decay has shape [{size}], and there are {heads} heads of {tokens} tokens; allowed: [{heads}, 1] for one of each head, "
                f"[1, {tokens}] for one of each token"
            )
        shaped["decay"] = value = of_heads.unsqueeze(1 if size == heads else 0)
        tokens = _agree("decay", value, 1, tokens, "tokens")
    return shaped, heads, tokens


def _agree(name: str, value: torch.Tensor, axis: int, size: int, what: str) -> int:
    found = value.shape[axis]
    if found < 1 or (found > 1 and size > 1 and found != size):
        raise ValueError(
            f"{name} has shape {list(value.shape)}: {found} {what}; allowed beside the other vectors: {size} or 1"
        )
    return max(size, found)


def _stacked(x, shaped: Dict[str, torch.Tensor], heads: int, n: int) -> Tuple[torch.Tensor, Optional[torch.Tensor]]:
    """(w [H, 4, n], bias [H, n] or None), of vectors of n or 1 elements, in the dtype that recurrences are computed in."""
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    shaped = {name: value.to(wide) for name, value in shaped.items()}
    diagonal = shaped.get("diagonal")
    if diagonal is None and "source" in shaped and "target" in shaped:
        diagonal = shaped["source"] * shaped["target"]
    elif diagonal is None:
        diagonal = shaped.get("source", shaped.get("target"))
    parts = shaped.get("source"), shaped.get("target"), shaped.get("decay"), diagonal
    if any(part is None for part in parts):
        one = torch.ones((1, 1), dtype=wide, device=x.device)
        parts = tuple(one if part is None else part for part in parts)
    bias = shaped.get("bias")
    w = torch.stack([part.expand(heads, n) for part in parts], 1)
    return w, None if bias is None else bias.expand(heads, n).contiguous()


def _operands(x, layout, source, target, decay, diagonal, bias) -> Tuple[torch.Tensor, Optional[torch.Tensor]]:
    """The operators' w and bias, as long as x."""
    if x.dim() != 3:
        axes = "[batch, tokens, features]" if layout == "btd" else "[batch, features, tokens]"
        raise ValueError(f"x has shape {list(x.shape)}; allowed: rank 3, {axes} (layout={layout})")
    given = dict(zip((*_NAMES, "bias"), (source, target, decay, diagonal, bias)))
    shaped, heads, tokens = _rows(x, given)
    n, features = (x.shape[1], x.shape[2]) if layout == "btd" else (x.shape[2], x.shape[1])
    if tokens > 1:
        if n > tokens:
            raise ValueError(
                f"x has {n} tokens (shape {list(x.shape)}, layout={layout}) while the vectors have {tokens}; allowed: at most {tokens} tokens"
            )
        if n < tokens == features and not arguments._prefix_is_meant.get():
            errors.warn_of_transposed(x.shape, tokens, layout, "x")
        if n < tokens:
            shaped = {name: value[:, :n] for name, value in shaped.items()}
    return _stacked(x, shaped, heads, n)


# ---- decoding --------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def scan_state(
    x: torch.Tensor,
    source: Vector = None,
    target: Vector = None,
    decay: Vector = None,
    diagonal: Vector = None,
    bias: Optional[torch.Tensor] = None,
    *,
    layout: Layout = "btd",
) -> torch.Tensor:
    """The state that scan's tokens x leave, [B, H*D] of float32 (float64 beside float64), for scan_step: S[n-1] of

    S[t] = decay[t] S[t-1] + source[t] x[t],   S[-1] = 0

    x and the vectors as scan's. target, diagonal and bias do not enter; they may be given, so that one set of arguments serves all three
    functions. Plain torch on the current stream; no gradients."""
    arguments.check_tensor(x, "x")
    arguments.check_options(0, layout, "lower", "none", "default", 1)
    w, _ = _operands(x, layout, source, target, decay, diagonal, bias)
    sizes = _check(x, w, None, None, None, layout, "none")
    with torch._C._DisableAutocast():
        return recurrence.last_state(w, plain.heads_first(x, sizes, layout)).flatten(1)


@torch.no_grad()
def scan_step(
    x: torch.Tensor,
    t: int,
    state: torch.Tensor,
    source: Vector = None,
    target: Vector = None,
    decay: Vector = None,
    diagonal: Vector = None,
    bias: Optional[torch.Tensor] = None,
) -> Tuple[torch.Tensor, torch.Tensor]:
    """(y, the state after it): scan's output for token t, given the state after token t-1. Work and memory of one token, whatever t.

    y = bias[t] + target[t] decay[t] state + diagonal[t] x,   state' = decay[t] state + source[t] x

    x       [B, H*D], token t of each sequence
    t       0 <= t < T
    state   [B, H*D] of float32 (float64 beside float64), scan_state's or the last step's; zeros before the first token. Not changed
    vectors as scan's

    y has x's dtype, rounded once. Plain torch on the current stream, so a CUDA graph or torch.compile can take it; no gradients."""
    arguments.check_tensor(x, "x")
    if x.dim() != 2:
        raise ValueError(f"x has shape {list(x.shape)}; allowed: [batch, features], one token of each sequence")
    arguments.check_dtypes("x", x.dtype, x.dtype)
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    if state.shape != x.shape or state.dtype != wide or state.device != x.device:
        raise ValueError(
            f"state is {state.dtype} {list(state.shape)} on {state.device}; allowed: {wide} {list(x.shape)} on {x.device}"
        )
    given = dict(zip((*_NAMES, "bias"), (source, target, decay, diagonal, bias)))
    shaped, heads, tokens = _rows(x, given)
    if isinstance(t, bool) or not isinstance(t, int) or t < 0 or (tokens > 1 and t >= tokens):
        raise ValueError(f"t={t!r}; allowed: an integer from 0 {f'to {tokens - 1}' if tokens > 1 else 'on'}")
    shaped = {name: value[:, t : t + 1] if value.shape[1] > 1 else value for name, value in shaped.items()}
    _check_features(x.shape[1], heads, x)
    with torch._C._DisableAutocast():
        w, offset = _stacked(x, shaped, heads, 1)
        write, read, keep, diag = w.unbind(1)  # [H, 1]
        token, before = (one.to(wide).unflatten(1, (heads, -1)) for one in (x, state))
        y = read * keep * before + diag * token
        after = keep * before + write * token
        y = y if offset is None else y + offset
    return y.flatten(1).to(x.dtype), after.flatten(1)


# ---- the operators' checks -------------------------------------------------------------------------------------------------


def _check_features(features: int, heads: int, x) -> None:
    if features % heads != 0:
        raise ValueError(
            f"x has {features} features (shape {list(x.shape)}) while the vectors have {heads} heads; allowed: a multiple of {heads}"
        )


def _check(x, w, bias, gate, residual, layout: str, activation: str, name: str = "x") -> Sizes:
    arguments.check_options(0, layout, "lower", activation, "default", 1)
    if w.dim() != 3 or w.shape[1] != 4 or x.dim() != 3:
        raise ValueError(f"w has shape {list(w.shape)} and {name} {list(x.shape)}; allowed: [heads, 4, n], and rank 3")
    heads, n = w.shape[0], w.shape[2]
    batch, tokens, features = x.shape if layout == "btd" else (x.shape[0], x.shape[2], x.shape[1])
    if tokens != n:
        raise ValueError(
            f"w has {n} tokens and {name} {tokens} (shape {list(x.shape)}, layout={layout}); allowed: as many"
        )
    if any(isinstance(size, int) and size < 1 for size in (n, features, heads)):
        raise ValueError(f"{name} has shape {list(x.shape)}; every size but the batch's must be at least 1")
    _check_features(features, heads, x)
    for what, value in (("batch * features", batch * features), ("tokens", n), ("heads", heads)):
        if isinstance(value, int) and value > arguments.MAX_COORDINATE:
            raise ValueError(
                f"{name} has shape {list(x.shape)}: {what} = {value}; allowed: at most {arguments.MAX_COORDINATE}"
            )
    arguments.check_dtypes(name, x.dtype, w.dtype)
    arguments.check_device("w", w, x, name)
    if bias is not None:
        if list(bias.shape) != [heads, n] or bias.dtype != w.dtype:
            raise ValueError(f"bias is {bias.dtype} {list(bias.shape)}; allowed: {w.dtype} {[heads, n]}")
        arguments.check_device("bias", bias, x, name)
    arguments.check_like("gate", gate, x)
    arguments.check_like("residual", residual, x)
    return Sizes(batch, heads, n, features // heads, 1, n)


def _check_pair(grad, x, w, layout: str) -> Sizes:
    sizes = _check(grad, w, None, None, None, layout, "none", "grad")
    arguments.check_like("x", x, grad, "grad")
    return sizes


# ---- plain torch -----------------------------------------------------------------------------------------------------------


def _plain_run(x, w, bias, gate, residual, layout, activation, pre):
    sizes = _check(x, w, bias, gate, residual, layout, activation)
    if recording.active is not None:
        problems.record(problems.scan(sizes, x, w, bias, gate, residual, layout, activation, pre))
    return recurrence.run(x, w, bias, gate, residual, sizes, layout, activation, pre)


def _plain_grad_input(grad, w, layout):
    sizes = _check(grad, w, None, None, None, layout, "none", "grad")
    if recording.active is not None:
        problems.record(problems.scan_grad_input(sizes, grad, w, layout))
    return recurrence.grad_input(grad, w, sizes, layout)


def _plain_grad_weight(grad, x, w, bias, layout):
    sizes = _check_pair(grad, x, w, layout)
    if recording.active is not None:
        problems.record(problems.scan_grad_weight(sizes, grad, x, w, bias, layout))
    return recurrence.grad_weight(grad, x, w, bias, sizes, layout)


_plain = SimpleNamespace(
    run=_plain_run,
    grad_input=_plain_grad_input,
    grad_weight=_plain_grad_weight,
    grad_epilogue=plain.grad_epilogue,
)


# ---- NVIDIA GPUs -----------------------------------------------------------------------------------------------------------


def _launch(op, tensors, w, options, call):
    """The launch of this combination, made when it is new by call(). tensors: those like x, each of which may be None."""
    low = 0
    for tensor in tensors:
        if tensor is not None:
            low |= tensor.data_ptr()
    key = (op, *map(cuda._key_of, tensors), cuda._key_of(w), options, low & 15, w.data_ptr() & 15)
    found = launch.launches.get(key)
    if found is None:
        found = launch.launches[key] = launch.make(call())
    if recording.active is not None and found.handle:
        launch.record(found)
    return found


def _contiguous(tensor):
    return tensor if tensor is None or tensor.is_contiguous() else launch.contiguous(tensor)


def _like(x, found):
    return launch.empty_like(x) if found.like_x else launch.empty(x.shape, dtype=x.dtype, device=x.device)


def _cuda_run(x, w, bias, gate, residual, layout, activation, pre):
    w, bias = _contiguous(w), _contiguous(bias)

    def call():
        sizes = _check(x, w, bias, gate, residual, layout, activation)
        return problems.scan(sizes, x, w, bias, gate, residual, layout, activation, pre)

    options = layout, activation, pre, cuda._key_of(bias)
    found = _launch("scan", (x, gate, residual), w, options, call)
    if found.copies:
        copied = cuda._copied((x, w, bias, gate, residual), found.copies)
        return _cuda_run(*copied, layout, activation, pre)
    if not found.handle:
        return _plain_run(x, w, bias, gate, residual, layout, activation, pre)
    y = _like(x, found)
    z = launch.empty_like(y) if pre else None
    extras = b"" if z is None and gate is None and residual is None else found.with_extras(z, gate, residual)
    found.run(x.data_ptr(), y.data_ptr(), w.data_ptr(), 0 if bias is None else bias.data_ptr(), extras)
    return y, z


def _cuda_grad_input(grad, w, layout):
    w = _contiguous(w)

    def call():
        return problems.scan_grad_input(_check(grad, w, None, None, None, layout, "none", "grad"), grad, w, layout)

    found = _launch("scan_grad_input", (grad,), w, layout, call)
    if found.copies:
        return _cuda_grad_input(launch.contiguous(grad), w, layout)
    if not found.handle:
        return _plain_grad_input(grad, w, layout)
    dx = _like(grad, found)
    found.run(dx.data_ptr(), grad.data_ptr(), w.data_ptr())
    return dx


def _cuda_grad_weight(grad, x, w, bias, layout):
    w = _contiguous(w)

    def call():
        return problems.scan_grad_weight(_check_pair(grad, x, w, layout), grad, x, w, bias, layout)

    found = _launch("scan_grad_weight", (grad, x), w, (layout, bias), call)
    if found.copies:
        return _cuda_grad_weight(*cuda._copied((grad, x), found.copies), w, bias, layout)
    if not found.handle:
        return _plain_grad_weight(grad, x, w, bias, layout)
    dw = launch.empty_like(w)
    db = launch.empty((w.shape[0], w.shape[2]) if bias else (0,), dtype=w.dtype, device=w.device)
    extras = found.with_extras(None, None, dw)
    found.run(x.data_ptr(), grad.data_ptr(), w.data_ptr(), db.data_ptr() if bias else 0, extras)
    return dw, db


_cuda = SimpleNamespace(
    run=_cuda_run, grad_input=_cuda_grad_input, grad_weight=_cuda_grad_weight, grad_epilogue=cuda.grad_epilogue
)


def kernels_of(x):
    """The implementation for x's device, by the same names."""
    return _cuda if x.is_cuda else _plain


# ---- the derivative --------------------------------------------------------------------------------------------------------


class Scan(torch.autograd.Function):
    """act(W x + bias) * gate + residual with its derivative. run: makes (y, pre or None) of the tensors, layout, activation and whether the
    value before the activation is wanted."""

    @staticmethod
    def forward(ctx, x, w, bias, gate, residual, layout, activation, run):
        keeps = activation != "none" or gate is not None
        y, pre = run(x, w, bias, gate, residual, layout, activation, keeps)
        ctx.options = layout, activation
        ctx.save_for_backward(x, w, *((bias, gate, pre) if keeps else ()))
        return y

    @staticmethod
    def backward(ctx, grad):
        layout, activation = ctx.options
        needs_x, needs_w, needs_bias, needs_gate, needs_residual = ctx.needs_input_grad[:5]
        x, w, *kept = ctx.saved_tensors
        kernels = _kernels_of_backward(grad, w)
        dz, dgate = grad, None
        if kept:
            bias, gate, pre = kept
            if torch.is_grad_enabled():  # to be differentiated again, so as a function of what it is made of
                pre = kernels.run(x, w, bias, None, None, layout, "none", False)[0]
            dz, dgate = kernels.grad_epilogue(grad, pre, gate, activation)
        dx = dw = db = None
        if needs_x:
            dx = kernels.grad_input(dz, w, layout)
        if needs_w:
            dw, db = kernels.grad_weight(dz, x, w, needs_bias, layout)
        elif needs_bias:
            db = ops.bias_gradient(dz, (w.shape[0], w.shape[2]), w.dtype, layout)
        db, dgate, dresidual = (
            db if needs_bias else None,
            dgate if needs_gate else None,
            grad if needs_residual else None,
        )
        return dx, dw, db, dgate, dresidual, None, None, None


_apply = Scan.apply


def _kernels_of_backward(grad, w):
    if torch.is_grad_enabled() or ops._functorch() is not None:
        return _differentiable
    return kernels_of(grad) if ops.direct(grad, w) and not ops._is_batched(grad) else _operators


# ---- registration ----------------------------------------------------------------------------------------------------------

_FORMS = 'str layout="btd"'
_SCHEMAS = (
    f"scan(Tensor x, Tensor w, Tensor? bias=None, Tensor? gate=None, Tensor? residual=None, {_FORMS}, "
    'str activation="none", bool pre=False) -> (Tensor, Tensor)',
    f"scan_grad_input(Tensor grad, Tensor w, {_FORMS}) -> Tensor",
    f"scan_grad_weight(Tensor grad, Tensor x, Tensor w, bool bias=False, {_FORMS}) -> (Tensor, Tensor)",
)
for _schema in _SCHEMAS:
    ops.LIBRARY.define(_schema, tags=(torch.Tag.pt2_compliant_tag,))
_scan = torch.ops.trigen.scan.default
_grad_input = torch.ops.trigen.scan_grad_input.default
_grad_weight = torch.ops.trigen.scan_grad_weight.default


def _below_autograd(*given):
    with torch._C._AutoDispatchBelowAutograd():
        return _scan(*given)


_operators = SimpleNamespace(
    run=_below_autograd, grad_input=_grad_input, grad_weight=_grad_weight, grad_epilogue=plain.epilogue_gradients
)
# Plain torch that autograd and functorch see through:
_differentiable = SimpleNamespace(
    run=lambda x, w, bias, gate, residual, layout, activation, pre: recurrence.run(
        x, w, bias, gate, residual, _check(x, w, bias, gate, residual, layout, activation), layout, activation, pre
    ),
    grad_input=lambda grad, w, layout: recurrence.grad_input(
        grad, w, _check(grad, w, None, None, None, layout, "none", "grad"), layout
    ),
    grad_weight=lambda grad, x, w, bias, layout: recurrence.grad_weight(
        grad, x, w, bias, _check_pair(grad, x, w, layout), layout
    ),
    grad_epilogue=plain.epilogue_gradients,
)


def _fake_run(x, w, bias=None, gate=None, residual=None, layout="btd", activation="none", pre=False):
    _check(x, w, bias, gate, residual, layout, activation)
    return x.new_empty(x.shape), x.new_empty(x.shape if pre else [0])


def _fake_grad_input(grad, w, layout="btd"):
    _check(grad, w, None, None, None, layout, "none", "grad")
    return grad.new_empty(grad.shape)


def _fake_grad_weight(grad, x, w, bias=False, layout="btd"):
    _check_pair(grad, x, w, layout)
    return w.new_empty(w.shape), w.new_empty([w.shape[0], w.shape[2]] if bias else [0])


def _operator(kernels):
    """The implementations as the operators' kernels: with defaults, no None among the results, and none that is another."""

    def run(x, w, bias=None, gate=None, residual=None, layout="btd", activation="none", pre=False):
        y, z = kernels.run(x, w, bias, gate, residual, layout, activation, pre)
        return y, x.new_empty(0) if z is None else z

    def grad_input(grad, w, layout="btd"):
        return kernels.grad_input(grad, w, layout)

    def grad_weight(grad, x, w, bias=False, layout="btd"):
        return kernels.grad_weight(grad, x, w, bias, layout)

    return run, grad_input, grad_weight


def _autograd(x, w, bias=None, gate=None, residual=None, layout="btd", activation="none", pre=False):
    """The kernel of scan's Autograd key."""
    tensors = x, w, bias, gate, residual
    ops._refuse_tangents("scan", tensors)
    if pre or not ops.recorded(*tensors):
        return _below_autograd(*tensors, layout, activation, pre)
    return Scan.apply(*tensors, layout, activation, _below_autograd), x.new_empty(0)


for _name, _on_gpu, _elsewhere, _fake in zip(
    ("scan", "scan_grad_input", "scan_grad_weight"),
    _operator(_cuda),
    _operator(_plain),
    (_fake_run, _fake_grad_input, _fake_grad_weight),
):
    ops.LIBRARY.impl(_name, _elsewhere, "CompositeExplicitAutograd")
    ops.LIBRARY.impl(_name, _on_gpu, "CUDA")
    torch.library.register_fake(f"trigen::{_name}", _fake, lib=ops.LIBRARY)
ops.LIBRARY.impl("scan", _autograd, "Autograd")
if hasattr(torch.library, "register_vmap"):  # PyTorch 2.5
    for _op, _activations, _weights in (
        (_scan, (0, 3, 4), (1, 2)),
        (_grad_input, (0,), (1,)),
        (_grad_weight, (), None),
    ):
        _rule = ops._vmap(_op, _activations, _weights)
        torch.library.register_vmap(_op._schema.name, _rule, lib=ops.LIBRARY)
