"""Token mixers whose W is a few vectors: scan, and its operators trigen::scan, trigen::scan_backward, trigen::scan_grad_input and
trigen::scan_grad_weight.

    scan(x, w, bias?, gate?, residual?, layout, activation, pre) -> (y, pre)     pre is empty unless asked for
    scan_grad_input(grad, w, layout)                             -> dx           dx = W^T grad
    scan_grad_weight(grad, x, w, bias, layout)                   -> (dw, dbias)  dbias is empty unless asked for
    scan_backward(grad, x, w, bias, layout)                      -> (dx, dw, dbias)   both in one walk

The operators take the vectors as one tensor w [4, H, n] (source, target, decay, diagonal; float32, or x's dtype), bias [H, n] (of one
head [n] as well) of w's dtype.
The functional form makes it of what it is given (vectors.py) by differentiable torch, but not in plain eager mode: there its derivative, Scan,
has kernels take the vectors as they are. Derivatives of the derivative are made in plain torch (recurrence.py).

A combination of shapes, strides, dtypes and modes that ran before in plain eager mode is recognised by one check in C, as known.py's; what its
vectors and launches are is in its Call.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Optional, Tuple

import torch
from torch.autograd import forward_ad

from .. import recording
from ..options import Activation, Layout
from . import arguments, cuda, guards, known, launch, ops, plain, problems, recurrence, transforms, vectors
from .arguments import Sizes
from .vectors import Vector

_compiling, _grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled


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
    decay_range: Optional[Tuple[float, float]] = None,
    decay_constant: float = 1.0,
) -> torch.Tensor:
    """y[b,h,t,d] = act(bias[h,t] + sum over s <= t of W[h,t,s] x[b,h,s,d]) * gate + residual, for a W that is vectors:

    W[h,t,s] = target[h,t] decay[h,t] decay[h,t-1] ... decay[h,s+1] source[h,s] for s < t,   W[h,t,t] = diagonal[h,t]

    x          [B, n, H*D] (layout "btd") or [B, H*D, n] ("bdt"), n <= T: a prefix uses the vectors' first n elements
    source, target, decay, diagonal   [T], [H, T], or what broadcasts to that: a number, [H, 1]; decay also [H], beside others that have H
               rows. Left out, the first three are ones and diagonal is source * target. decay[0] does not count
    decay_range, decay_constant   the decay is clip(decay, *decay_range) ** (1 / decay_constant): what torch.clip and ** ahead of the call
               compute, with their derivatives, in the recurrence's dtype and, what clips, in the kernels
    bias       [T] or [H, T]
    gate, residual   like x
    activation None, "gelu" (exact) or "silu"

    dtypes: float16, bfloat16, float32 (x, gate, residual, y), float64 in plain torch; vectors and bias of any floating dtype: they are
    computed with in float32 (float64 beside float64), as the recurrence is, and rounded to nothing shorter. Under autocast x, gate and
    residual are cast, the vectors are not. Returns y, contiguous, like x; of an x that lies transposed (x.mT) it lies so, too.
    Differentiable in every tensor; second derivatives, forward mode and torch.func run in plain torch. On a CPU, and where set_fallback says
    so, plain torch computes all of it, without a matrix of T x T.
    Errors: ValueError, TypeError (arguments); trigen.TrigenError (libtrigen). Runs on the current stream of x's device and does not
    synchronise.
    """
    given = source, target, decay, diagonal, bias
    key = None
    if not _compiling():
        tensors = x, *given, gate, residual
        present = [one for one in tensors if one is not None]
        try:
            key = (x.shape, layout, activation, decay_range, decay_constant, *[one is None for one in tensors])
            calls = _calls.get(key, ())
        except (TypeError, AttributeError):  # no tensor, or an option that is no option: refused by name below
            key, calls = None, ()
        for call in calls:
            if call.check(*present) and call.is_of_now():
                return call(tensors)
    arguments.check_tensor(x, "x")
    name = activation or "none"
    if layout not in arguments.LAYOUTS:
        arguments.check_options(layout, "lower", 0, name, "default", "dense")
    before = tensors = x, *given, gate, residual
    given = vectors.tensors_of(x, given)
    device, autocast = "cuda" if x.is_cuda else "cpu", None
    if torch.is_autocast_enabled(device):
        autocast = torch.get_autocast_dtype(device)
        x, gate, residual = ops.autocast_activations(autocast, x, gate, residual)
    tensors = x, *given, gate, residual
    changed = key is not None and any(one is not other for one, other in zip(tensors, before))
    lying = arguments.as_it_lies(x, gate, residual, layout)
    if lying is not None or changed:  # what is left may be known
        if lying is not None:
            vectors.placed(x, given, layout, decay_range, decay_constant)  # refuses by the names that were given
            x, gate, residual, layout = lying
        y = scan(
            x,
            *given,
            gate=gate,
            residual=residual,
            layout=layout,
            activation=activation,
            decay_range=decay_range,
            decay_constant=decay_constant,
        )
        return y if lying is None else y.mT
    placed = vectors.placed(x, given, layout, decay_range, decay_constant)
    if key is None or not ops.direct(*tensors):
        w, bias = placed.make(given), placed.bias(given)
        run = _differentiable.run if not _compiling() and transforms.wanted() else _scan
        return run(x, w, bias, gate, residual, layout, name, False)[0]
    call = Call(placed, layout, name, tensors, autocast)
    y = call(tensors)
    if guards.works() and _calls.has_room(key):
        call.check = guards.guard(*present)
        _calls.learn(key, call)
    return y


# ---- the operators' checks -------------------------------------------------------------------------------------------------


def check_features(features: int, heads: int, x) -> None:
    if features % heads != 0:
        raise ValueError(
            f"x has {features} features (shape {list(x.shape)}) while the vectors have {heads} heads; allowed: a multiple of {heads} "
            f"(vectors are [T], or [heads, T])"
        )


def check(x, w, bias, gate, residual, layout: str, activation: str, name: str = "x") -> Sizes:
    arguments.check_options(layout, "lower", 0, activation, "default", "dense")
    if w.dim() != 3 or w.shape[0] != 4 or x.dim() != 3:
        raise ValueError(f"w has shape {list(w.shape)} and {name} {list(x.shape)}; allowed: [4, heads, n], and rank 3")
    heads, n = w.shape[1], w.shape[2]
    batch, tokens, features = x.shape if layout == "btd" else (x.shape[0], x.shape[2], x.shape[1])
    if tokens != n:
        raise ValueError(
            f"w has {n} tokens and {name} {tokens} (shape {list(x.shape)}, layout={layout}); allowed: as many"
        )
    if any(isinstance(size, int) and size < 1 for size in (n, features, heads)):
        raise ValueError(f"{name} has shape {list(x.shape)}; every size but the batch's must be at least 1")
    check_features(features, heads, x)
    for what, value in (("batch * features", batch * features), ("tokens", n), ("heads", heads)):
        if isinstance(value, int) and value > arguments.MAX_COORDINATE:
            raise ValueError(
                f"{name} has shape {list(x.shape)}: {what} = {value}; allowed: at most {arguments.MAX_COORDINATE}"
            )
    arguments.check_dtypes(name, x.dtype, w.dtype)
    arguments.check_device("w", w, x, name)
    if bias is not None:
        if (list(bias.shape) != [heads, n] and (heads > 1 or list(bias.shape) != [n])) or bias.dtype != w.dtype:
            raise ValueError(f"bias is {bias.dtype} {list(bias.shape)}; allowed: {w.dtype} {[heads, n]}")
        arguments.check_device("bias", bias, x, name)
    arguments.check_like("gate", gate, x)
    arguments.check_like("residual", residual, x)
    return Sizes(batch, heads, n, features // heads, 1, n)


def _check_pair(grad, x, w, layout: str) -> Sizes:
    sizes = check(grad, w, None, None, None, layout, "none", "grad")
    arguments.check_like("x", x, grad, "grad")
    return sizes


# ---- plain torch -----------------------------------------------------------------------------------------------------------


def _plain_run(x, w, bias, gate, residual, layout, activation, pre):
    sizes = check(x, w, bias, gate, residual, layout, activation)
    if recording.active is not None:
        problems.record(problems.scan(sizes, x, w, bias, gate, residual, layout, activation, pre))
    return recurrence.run(x, w, bias, gate, residual, sizes, layout, activation, pre)


def _plain_grad_input(grad, w, layout):
    sizes = check(grad, w, None, None, None, layout, "none", "grad")
    if recording.active is not None:
        problems.record(problems.scan_grad_input(sizes, grad, w, layout))
    return recurrence.grad_input(grad, w, sizes, layout)


def _plain_backward(grad, x, w, bias, layout, wants_dx=True):
    """(dx or None, dw, dbias)."""
    sizes = _check_pair(grad, x, w, layout)
    if recording.active is not None:
        problems.record(problems.scan_grad_weight(sizes, grad, x, w, bias, layout, wants_dx))
    dx = recurrence.grad_input(grad, w, sizes, layout) if wants_dx else None
    return dx, *recurrence.grad_weight(grad, x, w, bias, sizes, layout)


def _plain_grad_weight(grad, x, w, bias, layout):
    return _plain_backward(grad, x, w, bias, layout, False)[1:]


_plain = SimpleNamespace(
    run=_plain_run,
    grad_input=_plain_grad_input,
    grad_weight=_plain_grad_weight,
    backward=_plain_backward,
    grad_epilogue=plain.grad_epilogue,
)


# ---- NVIDIA GPUs -----------------------------------------------------------------------------------------------------------


def _launch(op, tensors, like, options, make):
    """The launch of this combination, made when it is new. tensors: those like x, each but the first may be None. like: Rows'."""
    low, present = 0, []
    for tensor in tensors:
        if tensor is not None:
            low |= tensor.data_ptr()
            present.append(tensor)
    key = op, tensors[0].shape, like.shape, like.dtype, options, low & 15
    found = launch.launches.find(key, present, make)
    if recording.active is not None and found.handle:
        launch.record(found)
    return found


def _rows(w) -> vectors.Rows:
    return w if type(w) is vectors.Rows else vectors.rows_of(w)


def _contiguous(tensor):
    return tensor if tensor is None or tensor.is_contiguous() else launch.contiguous(tensor)


def _like(x, found):
    return launch.empty_like(x) if found.like_x else launch.empty(x.shape, dtype=x.dtype, device=x.device)


def _run_launch(x, like, bias, gate, residual, layout, activation, pre) -> launch.Launch:
    def make():
        sizes = check(x, like, bias, gate, residual, layout, activation)
        return launch.make(problems.scan(sizes, x, like, bias, gate, residual, layout, activation, pre))

    options = layout, activation, pre, None if bias is None else bias.shape, gate is None, residual is None
    return _launch("scan", (x, gate, residual), like, options, make)


def _launched(found, x, packed: bytes, bias, gate, residual, pre):
    """(y, pre or None) by that launch of Rows.packed."""
    y = _like(x, found)
    z = launch.empty_like(y) if pre else None
    extras = b"" if z is None and gate is None and residual is None else found.with_extras(z, gate, residual)
    found.run(x.data_ptr(), y.data_ptr(), 0, 0 if bias is None else bias.data_ptr(), extras, 0, packed)
    return y, z


# w of these is the operators', or Rows, whose gradients they make.


def _cuda_run(x, w, bias, gate, residual, layout, activation, pre):
    rows, bias = _rows(w), _contiguous(bias)
    found = _run_launch(x, rows.like, bias, gate, residual, layout, activation, pre)
    if found.copies:
        copied = cuda._copied((x, rows, bias, gate, residual), found.copies)
        return _cuda_run(*copied, layout, activation, pre)
    if not found.handle:
        return _plain_run(x, rows.make(), bias, gate, residual, layout, activation, pre)
    return _launched(found, x, rows.packed, bias, gate, residual, pre)


def _grad_input_launch(grad, like, layout) -> launch.Launch:
    def make():
        sizes = check(grad, like, None, None, None, layout, "none", "grad")
        return launch.make(problems.scan_grad_input(sizes, grad, like, layout))

    return _launch("scan_grad_input", (grad,), like, layout, make)


def _cuda_grad_input(grad, w, layout):
    rows = _rows(w)
    found = _grad_input_launch(grad, rows.like, layout)
    if found.copies:
        return _cuda_grad_input(launch.contiguous(grad), rows, layout)
    if not found.handle:
        return _plain_grad_input(grad, rows.make(), layout)
    dx = _like(grad, found)
    found.run(dx.data_ptr(), grad.data_ptr(), 0, end=rows.packed)
    return dx


def _grad_weight_launch(grad, x, like, bias, layout, dx) -> launch.Launch:
    def make():
        sizes = _check_pair(grad, x, like, layout)
        found = launch.make(problems.scan_grad_weight(sizes, grad, x, like, bias, layout, dx))
        found.outputs = (
            launch.like(like.shape, like.dtype, like.device),
            launch.like(like.shape[1:] if bias else 0, like.dtype, like.device),
        )
        return found

    return _launch("scan_grad_weight", (grad, x), like, (layout, bias, dx), make)


def _launched_backward(found, x_pointer: int, grad_pointer: int, packed: bytes, dx, db):
    """(dx, dw) by that launch, which fills dx and db where they are not None."""
    dw = launch.empty_like(found.outputs[0])
    extras = found.with_extras(dx, None, dw)
    found.run(x_pointer, grad_pointer, 0, 0 if db is None else db.data_ptr(), extras, 0, packed)
    return dx, dw


def _cuda_backward(grad, x, w, bias, layout, wants_dx=True):
    """(dx or None, dw, dbias)."""
    rows = _rows(w)
    found = _grad_weight_launch(grad, x, rows.like, bias, layout, wants_dx)
    if found.copies:
        return _cuda_backward(*cuda._copied((grad, x), found.copies), rows, bias, layout, wants_dx)
    if not found.handle:
        whole = rows.make()
        dx, dw, db = _plain_backward(grad, x, whole, bias, layout, wants_dx)
        return dx, rows.vectors.of_given(dw, whole, rows.given, [one is not None for one in rows.given]), db
    dx, db = _like(x, found) if wants_dx else None, launch.empty_like(found.outputs[1])
    return *_launched_backward(found, x.data_ptr(), grad.data_ptr(), rows.packed, dx, db if bias else None), db


def _cuda_grad_weight(grad, x, w, bias, layout):
    return _cuda_backward(grad, x, w, bias, layout, False)[1:]


_cuda = SimpleNamespace(
    run=_cuda_run,
    grad_input=_cuda_grad_input,
    grad_weight=_cuda_grad_weight,
    backward=_cuda_backward,
    grad_epilogue=cuda.grad_epilogue,
)


def kernels_of(x):
    """The implementation for x's device, by the same names."""
    return _cuda if x.is_cuda else _plain


# ---- the derivative --------------------------------------------------------------------------------------------------------


class Call(known.Backward):
    """One combination of shapes, strides, dtypes and modes in plain eager mode: what its vectors come to, and once it ran on a GPU in the usual
    way, aligned and without copies, its launches. Any thread may run it.

    check   the guard of the tensors, once it is known
    wants   whether autograd records it"""

    __slots__ = (
        "vectors",
        "layout",
        "activation",
        "keeps",
        "wants",
        "device",
        "kernels",
        "launch",
        "strides",
        "check",
        "grad_mode",
        "autocast",
    )

    def __init__(self, made_of, layout: str, activation: str, tensors, autocast) -> None:
        """made_of: Vectors. tensors: scan's, by its order. autocast: its dtype, or None where it is off."""
        super().__init__(None)
        self.vectors, self.layout, self.activation, self.autocast = made_of, layout, activation, autocast
        self.device = "cuda" if tensors[0].is_cuda else "cpu"
        self.kernels, self.launch, self.grad_mode = kernels_of(tensors[0]), None, _grad_enabled()
        self.wants = self.grad_mode and any(one is not None and one.requires_grad for one in tensors)
        self.keeps = self.wants and (activation != "none" or tensors[6] is not None)

    def is_of_now(self) -> bool:
        """Whether what the guard does not tell is as it was."""
        return (
            self.grad_mode is _grad_enabled()
            and forward_ad._current_level < 0
            and (self.autocast is None or self.autocast is torch.get_autocast_dtype(self.device))
        )

    def __call__(self, tensors):
        if self.wants:
            return _apply(*tensors, self)
        x, *given, gate, residual = tensors
        return self.run(x, given, gate, residual)[0]

    def run(self, x, given, gate, residual):
        """(y, pre or None)."""
        found, low = self.launch, x.data_ptr()
        for one in (gate, residual):
            if one is not None:
                low |= one.data_ptr()
        usual = not low & 15 and recording.active is None and self.generation == launch.generation
        made_of = self.vectors
        bias = made_of.bias(given)
        if found is not None and usual:
            rows = made_of.ahead(given)
            return _launched(found, x, made_of.pack(rows, self.strides), bias, gate, residual, self.keeps)
        w = _weight_of(made_of, self.kernels, given)
        results = self.kernels.run(x, w, bias, gate, residual, self.layout, self.activation, self.keeps)
        if usual and self.kernels is _cuda:
            found = _run_launch(x, w.like, bias, gate, residual, self.layout, self.activation, self.keeps)
            if found.handle and not found.copies:
                self.strides, self.bias = (
                    made_of.strides(w.kept),
                    bias if bias is None else launch.empty_like(bias.detach()),
                )
                self.launch = found
        return results

    def run_of(self, grad, x, given, needs_bias: bool):
        made_of = self.vectors
        found = _grad_weight_launch(grad, x, made_of.like, needs_bias, self.layout, True)
        if not found.handle or not grad.is_contiguous():
            return None
        strides = made_of.strides(made_of.ahead(given))

        def run(grad, x_pointer: int, grad_pointer: int, given, bias):
            rows = made_of.ahead(given)
            db = None if bias is None else launch.empty_like(bias)
            packed = made_of.pack(rows, strides)
            return *_launched_backward(found, x_pointer, grad_pointer, packed, launch.empty_like(grad), db), db

        return run


def _weight_of(made_of, kernels, given):
    """w as those kernels take it."""
    return made_of.rows(given) if kernels is _cuda else made_of.make(given)


_calls = guards.Known()
launch.forgetters.append(_calls.clear)


class _Operator:
    """A Call's part for the operators, whose w is given."""

    vectors, launch = vectors.WHOLE, None

    def __init__(self, layout: str, activation: str, keeps: bool) -> None:
        self.layout, self.activation, self.keeps = layout, activation, keeps

    def run(self, x, given, gate, residual):
        w, bias = self.vectors.make(given), self.vectors.bias(given)
        return _below_autograd(x, w, bias, gate, residual, self.layout, self.activation, self.keeps)


class Scan(torch.autograd.Function):
    """act(W x + bias) * gate + residual with its derivative, of the vectors as they are given. call: a Call, or an _Operator."""

    @staticmethod
    def forward(ctx, x, source, target, decay, diagonal, bias, gate, residual, call):
        given = source, target, decay, diagonal, bias
        y, pre = call.run(x, given, gate, residual)
        ctx.call = call
        ctx.save_for_backward(x, *given, *((gate, pre) if call.keeps else ()))
        return y

    @staticmethod
    def backward(ctx, grad):
        call = ctx.call
        layout = call.layout
        needs_x, *needs, needs_gate, needs_residual, _ = ctx.needs_input_grad
        x, *given = ctx.saved_tensors
        given, kept = given[:5], given[5:]
        needs_w, needs_bias = any(needs[:4]), needs[4]
        again = torch.is_grad_enabled()  # to be differentiated again, so as a function of what it is made of
        pair = needs_x and needs_w and not again and call.launch is not None
        dz, dgate, got = grad, None, None
        present = [one for one in given if one is not None]
        if pair and not kept:
            got = call.gradients((dz, x, *present), given, needs_bias)
        if got is None:
            kernels = _kernels_of_backward(grad, x, *present)
            if kept:
                gate, pre = kept
                if again:
                    w, bias = call.vectors.make(given), call.vectors.bias(given)
                    pre = kernels.run(x, w, bias, None, None, layout, "none", False)[0]
                dz, dgate = kernels.grad_epilogue(grad, pre, gate, call.activation)
                got = call.gradients((dz, x, *present), given, needs_bias) if pair else None
        if got is not None:
            dx, dw, db = got
        else:
            w = _weight_of(call.vectors, kernels, given)
            dw = db = None
            if needs_x and needs_w:
                dx, dw, db = kernels.backward(dz, x, w, needs_bias, layout)
                if pair and kernels is _cuda:
                    call.learn_gradients((dz, x, *present), given, needs_bias)
            else:
                dx = kernels.grad_input(dz, w, layout) if needs_x else None
                if needs_w:
                    dw, db = kernels.grad_weight(dz, x, w, needs_bias, layout)
                elif needs_bias:
                    like = w.like if kernels is _cuda else w
                    db = ops.bias_gradient(dz, tuple(like.shape[1:]), like.dtype, layout)
            if needs_w and kernels is not _cuda:
                dw = call.vectors.of_given(dw, w, given, needs)
        return (
            dx,
            *call.vectors.gradients(dw, db, given, needs),
            dgate if needs_gate else None,
            grad if needs_residual else None,
            None,
        )


_apply = super(torch.autograd.Function, Scan).apply  # as ops.apply_direct


def _kernels_of_backward(grad, *tensors):
    if torch.is_grad_enabled() or ops._functorch() is not None:
        return _differentiable
    return kernels_of(grad) if ops.direct(grad, *tensors) and not ops._is_batched(grad) else _operators


# ---- registration ----------------------------------------------------------------------------------------------------------

_FORMS = 'str layout="btd"'
_SCHEMAS = (
    f"scan(Tensor x, Tensor w, Tensor? bias=None, Tensor? gate=None, Tensor? residual=None, {_FORMS}, "
    'str activation="none", bool pre=False) -> (Tensor, Tensor)',
    f"scan_grad_input(Tensor grad, Tensor w, {_FORMS}) -> Tensor",
    f"scan_grad_weight(Tensor grad, Tensor x, Tensor w, bool bias=False, {_FORMS}) -> (Tensor, Tensor)",
    f"scan_backward(Tensor grad, Tensor x, Tensor w, bool bias=False, {_FORMS}) -> (Tensor, Tensor, Tensor)",
)
for _schema in _SCHEMAS:
    ops.LIBRARY.define(_schema, tags=ops.TAGS)
_scan = torch.ops.trigen.scan.default
_grad_input = torch.ops.trigen.scan_grad_input.default
_grad_weight = torch.ops.trigen.scan_grad_weight.default
_backward = torch.ops.trigen.scan_backward.default


def _below_autograd(*given):
    with torch._C._AutoDispatchBelowAutograd():
        return _scan(*given)


_operators = SimpleNamespace(
    run=_below_autograd,
    grad_input=_grad_input,
    grad_weight=_grad_weight,
    backward=_backward,
    grad_epilogue=plain.epilogue_gradients,
)


# Plain torch that autograd and functorch see through:
_differentiable = SimpleNamespace(
    run=lambda x, w, bias, gate, residual, layout, activation, pre: recurrence.run(
        x, w, bias, gate, residual, check(x, w, bias, gate, residual, layout, activation), layout, activation, pre
    ),
    grad_input=lambda grad, w, layout: recurrence.grad_input(
        grad, w, check(grad, w, None, None, None, layout, "none", "grad"), layout
    ),
    grad_weight=lambda grad, x, w, bias, layout: recurrence.grad_weight(
        grad, x, w, bias, _check_pair(grad, x, w, layout), layout
    ),
    backward=lambda grad, x, w, bias, layout: (
        _differentiable.grad_input(grad, w, layout),
        *_differentiable.grad_weight(grad, x, w, bias, layout),
    ),
    grad_epilogue=plain.epilogue_gradients,
)


def _fake_run(x, w, bias=None, gate=None, residual=None, layout="btd", activation="none", pre=False):
    check(x, w, bias, gate, residual, layout, activation)
    return x.new_empty(x.shape), x.new_empty(x.shape if pre else [0])


def _fake_grad_input(grad, w, layout="btd"):
    check(grad, w, None, None, None, layout, "none", "grad")
    return grad.new_empty(grad.shape)


def _fake_grad_weight(grad, x, w, bias=False, layout="btd"):
    _check_pair(grad, x, w, layout)
    return w.new_empty(w.shape), w.new_empty(list(w.shape[1:]) if bias else [0])


def _fake_backward(grad, x, w, bias=False, layout="btd"):
    return grad.new_empty(grad.shape), *_fake_grad_weight(grad, x, w, bias, layout)


def _with_pre(y, pre):
    return y, y.new_empty(0) if pre is None else pre


def _operator(kernels):
    """The implementations as the operators' kernels: with defaults, no None among the results, and none that is another."""

    def run(x, w, bias=None, gate=None, residual=None, layout="btd", activation="none", pre=False):
        return _with_pre(*kernels.run(x, w, bias, gate, residual, layout, activation, pre))

    def grad_input(grad, w, layout="btd"):
        return kernels.grad_input(grad, w, layout)

    def grad_weight(grad, x, w, bias=False, layout="btd"):
        return kernels.grad_weight(grad, x, w, bias, layout)

    def backward(grad, x, w, bias=False, layout="btd"):
        return kernels.backward(grad, x, w, bias, layout)

    return run, grad_input, grad_weight, backward


def _autograd(x, w, bias=None, gate=None, residual=None, layout="btd", activation="none", pre=False):
    """The kernel of scan's Autograd key."""
    tensors = x, w, bias, gate, residual
    ops._refuse_tangents("scan", tensors)
    recorded = ops.recorded(*tensors)
    if not recorded and ops.direct(*tensors):
        return _with_pre(*kernels_of(x).run(*tensors, layout, activation, pre))
    if pre or not recorded:
        return _below_autograd(*tensors, layout, activation, pre)
    how = _Operator(layout, activation, activation != "none" or gate is not None)
    return Scan.apply(x, w, None, None, None, bias, gate, residual, how), x.new_empty(0)


for _name, _on_gpu, _elsewhere, _fake in zip(
    ("scan", "scan_grad_input", "scan_grad_weight", "scan_backward"),
    _operator(_cuda),
    _operator(_plain),
    (_fake_run, _fake_grad_input, _fake_grad_weight, _fake_backward),
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
        (_backward, (), None),
    ):
        _rule = ops._vmap(_op, _activations, _weights)
        torch.library.register_vmap(_op._schema.name, _rule, lib=ops.LIBRARY)
