"""Launches: what a known combination of shapes, strides and dtypes runs, and how it comes to its plan. Every run of a kernel from PyTorch is
a Launch.run.

Running builds no string, takes no lock, synchronises nothing and checks nothing. Memory comes from PyTorch's caching allocator (so
also from a graph's pool). A combination met for the first time makes its plan: a lookup in the cache files, or one compile. Under
stream capture that is refused before anything reaches the driver: run the model once before the capture, as PyTorch asks anyway.
"""

from __future__ import annotations

import os
import struct
from typing import Iterable, List, Optional, Tuple

import torch

from .. import errors, library, log, notebook, recording
from ..options import Fallback
from . import guards, problems

# Sources of memory, and questions to a device. Aliased so that tests on the emulated device can replace them.
empty, empty_like, contiguous = torch.empty, torch.empty_like, torch.Tensor.contiguous
is_capturing = torch.cuda.is_current_stream_capturing
raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None) or (
    lambda device: torch.cuda.current_stream(device).cuda_stream
)


def wait(device) -> None:
    """For what the current stream of a GPU was given so far."""
    torch.cuda.current_stream(device).synchronize()


_pack, _SIZE = library.ARGS_PREPARED.pack, library.ARGS_PREPARED.size
_pack_middle = struct.Struct("24sq24sq24sq24s").pack  # strides of the second tensor; pre, gate, residual with theirs
_NONE, _NO_END = bytes(24), bytes(library.ARGS_END)
W_UNCHANGED = bytes(library.ARGS_END - 4) + struct.pack("i", 1)
pack_strides, pack_repeats = struct.Struct("3q").pack, struct.Struct("2q").pack  # the latter: of a vector
# The end of the block, for decode, gram and scans: rows; alpha, beta, gamma; the vectors, each ahead of its strides, and bounds of decays.
_ENDS = [struct.Struct(form) for form in ("2q120x", "112x3f12x", "16xq16sq16sq16sq16s12x2f4x")]
assert all(end.size == library.ARGS_END for end in _ENDS)
pack_rows, pack_factors, pack_vectors = (end.pack for end in _ENDS)
_run = None  # trigen_plan_run, once the library is loaded
log.notices_are_said()  # by notes()


class Launch:
    """A plan, and its argument block but for the addresses. handle 0: plain torch serves it (float64, an empty triangle, the fallback), or
    copies says which tensors, by position, to make contiguous first. Immutable; any thread may run it."""

    __slots__ = (
        "handle",
        "index",
        "workspace",
        "scratch",
        "copies",
        "x",
        "y",
        "middle",
        "pre",
        "gate",
        "residual",
        "weight",
        "like_x",
        "bias_tokens",
        "text",
        "plan",
        "outputs",
        "prepared",
    )

    def __init__(
        self,
        problem: problems.Problem,
        plan: Optional[library.Plan] = None,
        call: Optional[problems.Call] = None,
        bias_tokens: int = 0,
    ):
        self.text, self.copies, self.plan = problem.text, problem.copies, plan  # the plan keeps the handle alive
        self.outputs: tuple = ()  # like(...) of what x's and the weight's shapes do not say
        self.prepared = ""  # what runs make of the weight, where their workspace is that alone: PlanInfo.prepared
        self.handle, self.workspace, self.bias_tokens = (
            0,
            0,
            bias_tokens,
        )  # bias_tokens > 0: of a bias [H, T] so many of each head are used
        if plan is None:
            return
        first = call.reads[0][2]
        self.handle, self.index, self.workspace = plan.handle, first.get_device(), plan.workspace_size
        self.scratch = bytes_like(self.workspace, first.device)
        if self.workspace:
            info = plan.describe()
            self.prepared = info.prepared if info.prepared_bytes == self.workspace else ""
        self.like_x = first.is_contiguous()  # outputs are made by empty_like
        out = pack_strides(*problem.out)
        own = {name: pack_strides(*strides) for name, strides in problem.strides.items()}
        self.x, self.y = own.get("x", out), own.get("y", out)
        written = "pre" in call.epilogue or "grad_input" in call.epilogue  # the latter: scan's dx
        self.pre = own.get("pre", out if written else _NONE)
        derives = call.op == "grad_epilogue"  # residual: grad_gate
        self.gate, self.residual = (
            own.get("gate", _NONE),
            own.get("residual", out if derives and "gate" in own else _NONE),
        )
        self.weight = struct.pack("2q", *problem.weight)
        self.middle = self.y + bytes(96)  # no pre, gate or residual

    def run(
        self,
        x: int,
        y: int,
        weight: int,
        bias: int = 0,
        middle: bytes = b"",
        workspace: int = 0,
        end: bytes = _NO_END,
        strides: bytes = b"",
    ) -> None:
        """Launches on the current stream of the launch's device. x, y, weight, bias: addresses, in trigen_args' roles (0: none). middle:
        with_extras' bytes. workspace: memory of at least self.workspace bytes, or 0: run takes its own. end: pack_rows(first, count) of decode,
        pack_factors of gram, pack_vectors of a scan, whose weight is 0; W_UNCHANGED. strides: pack_strides of x, other than the launch's own."""
        size = self.workspace
        if size and not workspace:
            scratch = empty_like(self.scratch)
            workspace = scratch.data_ptr()
        status = _run(
            self.handle,
            _pack(
                _SIZE, x, strides or self.x, y, middle or self.middle, weight, self.weight, bias, workspace, size, end
            ),
            raw_stream(self.index),
        )
        if status:
            self._fail(status)

    def with_extras(self, pre, gate, residual) -> bytes:
        """The block's middle for these tensors, each of which may be None; their strides are the ones that the launch was made for."""
        return _pack_middle(
            self.y,
            0 if pre is None else pre.data_ptr(),
            self.pre,
            0 if gate is None else gate.data_ptr(),
            self.gate,
            0 if residual is None else residual.data_ptr(),
            self.residual,
        )

    def with_residual(self, residual: int) -> bytes:
        """The same of an address, 0 for none."""
        return _pack_middle(self.y, 0, _NONE, 0, _NONE, residual, self.residual)

    def _fail(self, status: int) -> None:
        try:
            library.check(status)
        except errors.TrigenError as error:
            text = str(error)
            raise type(error)(text if self.text in text else f"{self.text}: {text}") from None


class Pair:
    """grad_input and grad_weight of one backward pass, one after the other on one stream, so with one workspace."""

    __slots__ = ("first", "second", "scratch")

    def __init__(self, first: Launch, second: Launch):
        self.first, self.second = first, second
        larger = first if first.workspace >= second.workspace else second
        self.scratch = larger.scratch

    def run(self, grad, x_pointer: int, grad_pointer: int, weight, bias, prepared=None):
        """(dx, dW, dbias or None), like grad, weight and bias. prepared: the workspace of a run whose `prepared` was first's."""
        dx, dw, workspace, end = empty_like(grad), empty_like(weight), 0, _NO_END
        like_scratch = self.scratch if prepared is None else self.second.scratch
        if like_scratch is not None:
            scratch = empty_like(like_scratch)
            workspace = scratch.data_ptr()
        first_workspace = workspace
        if prepared is not None:
            first_workspace, end = prepared.data_ptr(), W_UNCHANGED
        self.first.run(dx.data_ptr(), grad_pointer, weight.data_ptr(), 0, b"", first_workspace, end)
        db, db_pointer = None, 0
        if bias is not None:
            db = empty_like(bias)
            db_pointer = db.data_ptr()
        self.second.run(x_pointer, grad_pointer, dw.data_ptr(), db_pointer, b"", workspace)
        return dx, dw, db


def middle_of(y: bytes, gate=None, gate_strides=(), residual=None, residual_strides=()) -> bytes:
    """with_extras for strides that only the run knows, (batch, head, row) each."""
    gate_pointer, gate_packed = (0, _NONE) if gate is None else (gate.data_ptr(), pack_strides(*gate_strides))
    pointer, packed = (0, _NONE) if residual is None else (residual.data_ptr(), pack_strides(*residual_strides))
    return _pack_middle(y, 0, _NONE, gate_pointer, gate_packed, pointer, packed)


def like(shape, dtype, device):
    """One element expanded to that shape: empty_like makes a contiguous tensor of it in half the time of empty."""
    return torch.empty(1, dtype=dtype, device=device).expand(shape)


def pointers_on(addresses: List[int], device):
    """An array of pointers in device memory, as the current stream's next launch finds it. Waits for nothing; not during a capture, as a
    graph would copy from host memory that is given back here."""
    return torch.tensor(addresses, dtype=torch.int64, device="cpu", pin_memory=True).to(device, non_blocking=True)


def bytes_like(size: int, device):
    """like's workspace of `size` bytes. None for none."""
    return like(size, torch.uint8, device) if size else None


# ---- every launch that was made ------------------------------------------------------------------------------------------

launches = guards.Made()  # of Launch
forgetters: List = []  # what else holds launches: called before plans are destroyed
generation = 0  # how often plans were destroyed: launches of an earlier one are not to be run
_fallback: Fallback = os.environ.get("TRIGEN_FALLBACK", "error")  # type: ignore[assignment]


def make(call: problems.Call, bias_tokens: int = 0) -> Launch:
    """Makes the plan, unless tensors have to be copied first."""
    problem = problems.problem_of(call)
    if problem.copies or not problem.text:
        return Launch(problem)
    return Launch(problem, plan_of(problem.text, call.reads[0][2].get_device()), call, bias_tokens)


def record(launch: Launch) -> None:
    """Reports the launch's problem to the active recorder; also where plain torch serves what a kernel could."""
    if launch.text:
        recording.active.add(launch.text)


def set_fallback(policy: Fallback) -> Fallback:
    """Policy for a GPU tensor that no kernel can serve (no libtrigen.so, no compiler for a missing kernel, an
    unsupported device): "error" raises (the default, or TRIGEN_FALLBACK), "plain" uses plain torch operations and warns once.
    Returns the policy before. Combinations met already keep theirs."""
    global _fallback
    if policy not in ("error", "plain"):
        raise ValueError(f"policy={policy!r} is not known; allowed: error, plain")
    before, _fallback = _fallback, policy
    return before


def forget_plans() -> None:
    """Drops every plan, after waiting for its device: the next call of each combination looks into the cache again (after tuning)."""
    global generation
    made = [launch.plan for launch in list(launches.values()) if launch.plan is not None]
    generation += 1
    for forget in forgetters:
        forget()
    launches.clear()
    for index in {plan.describe().device_ordinal for plan in made}:
        torch.cuda.synchronize(index)
    for plan in made:
        plan.destroy()
    library.close_shared_runtime()


class PlanList(List[library.PlanInfo]):
    """A list of PlanInfo that a notebook shows as a table. `dense` of each says where a dense product is faster or may be, `slow` what holds it back."""

    def _repr_html_(self) -> str:
        return notebook.table(
            ("problem", "kernel", "chosen", "us", "dense, estimated", "from", "note"),
            (
                (
                    info.problem,
                    info.candidate,
                    info.provenance if info.match != "near" else f"{info.provenance}, {info.difference}",
                    f"{info.expected_us:.1f}" if info.expected_us else "",
                    f"{info.dense_us:.1f}" if info.dense_us else "",
                    info.layer or info.binary_from,
                    "; ".join(filter(None, (info.dense, info.slow))),
                )
                for info in self
            ),
        )


def plans() -> PlanList:
    """PlanInfo of every plan made so far."""
    return PlanList(launch.plan.describe() for launch in list(launches.values()) if launch.plan is not None)


# ---- making a plan -------------------------------------------------------------------------------------------------------


def plan_of(text: str, device: int) -> Optional[library.Plan]:
    """The plan, or None where plain torch shall serve."""
    global _run
    if is_capturing():
        raise RuntimeError(
            "the stream is capturing a graph and this combination of shapes has no plan yet; allowed: combinations that ran before; "
            "run the model once on the same shapes before the capture"
        )
    try:
        plan = library.shared_runtime().plan(text, device)
    except (errors.LibraryMissing, errors.Unsupported, errors.BuildError, errors.CacheMiss) as error:
        if _fallback != "plain":
            raise
        errors.warn_once(type(error).__name__, f"plain torch operations run instead of a trigen kernel: {error}")
        return None
    _run = library.load().trigen_plan_run
    for cause, said in notes(plan.describe()):
        errors.warn_once(cause, said)
    return plan


def make_ahead(texts: Iterable[str], device: int) -> None:
    """Makes the plans of these problems side by side, so that plan_of finds them: the runtime keeps what it made. Not during a capture."""
    library.make_ahead(texts, lambda text: library.shared_runtime().plan(text, device).destroy())


def notes(info: library.PlanInfo) -> List[Tuple[str, str]]:
    """(cause, text) of what the user of a plan should know: each cause is said once in a process."""
    found = []
    recorded = info.problem.startswith(("gram,", "newton_schulz,"))  # of an optimizer's step, which no model runs
    how = "trigen.record() around a step, then its tune()," if recorded else "trigen.tune(model, inputs)"
    if info.provenance != "measured":
        found.append(
            (
                "untuned",
                f"the cache has no tuned kernel for {info.problem}: the model's choice runs, which was not measured "
                f"({how} tunes it and others like it; this is said once)",
            )
        )
    elif info.match != "exact":
        found.append(
            (
                "near",
                f"the tuned kernel for {info.problem} was measured elsewhere than on this {info.device}: {info.difference} "
                f"({how} measures here; this is said once)",
            )
        )
    if info.slow:
        found.append((info.slow, f"{info.slow} ({info.problem}; this is said once)"))
    return found
