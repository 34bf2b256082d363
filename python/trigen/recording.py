"""Records the problems that a run meets: their canonical texts and how often each came, never data.

    with trigen.record() as seen:
        train_step(model, batch)
    seen.save("problems.txt")      # a problem list: `trigen tune --problems problems.txt`
    seen.tune()

Recording is per process, not per thread (PyTorch runs backward passes in threads of its own). It works on a CPU too: the list then
has the alignments of contiguous tensors. Under CUDA graphs only the capture is seen, since a replay calls no operator.
"""

from __future__ import annotations

import threading
from typing import Dict, List, Optional

from . import problem

# The recorder that operators report to, or None. Operators read it once per call.
active: Optional["Recorder"] = None


class Recorder:
    """Problems met while recording, in order of first appearance."""

    def __init__(self):
        self.counts: Dict[str, int] = {}
        self._lock = threading.Lock()
        self._outer: Optional[Recorder] = None

    def add(self, text: str) -> None:
        with self._lock:
            self.counts[text] = self.counts.get(text, 0) + 1
        if self._outer is not None:
            self._outer.add(text)

    @property
    def problems(self) -> List[str]:
        return list(self.counts)

    def to_text(self) -> str:
        """A problem list, most frequent problem first."""
        lines = sorted(self.counts.items(), key=lambda item: -item[1])
        return "".join(f"{text}  # met {count} time{'' if count == 1 else 's'}\n" for text, count in lines)

    def save(self, path) -> None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_text())

    def tune(self, **options):
        """Tunes what was recorded; options as trigen.tune_problems."""
        from . import tuning

        return tuning.tune_problems(self.problems, **options)

    def __enter__(self) -> "Recorder":
        global active
        self._outer = active
        active = self
        return self

    def __exit__(self, *exception) -> None:
        global active
        active = self._outer
        self._outer = None


def record() -> Recorder:
    """A context manager that records problems; nested ones see what inner ones see."""
    return Recorder()


# ---- called by the operators. Tensors come as anything with a dtype; sizes as torch.arguments.Sizes ------------------------

_NAMES = {"torch.float16": "f16", "torch.bfloat16": "bf16", "torch.float32": "f32"}


def _add(op, dtype, wdtype, sizes, pad, layout, fill, diag, math, epilogue) -> None:
    name, wname = _NAMES.get(str(dtype)), _NAMES.get(str(wdtype))
    recorder = active
    if name is None or wname is None or recorder is None:
        return  # no kernel serves it: plain torch does
    diag = problem.effective_diagonal(fill, diag, sizes.n)
    if diag is None:
        return
    recorder.add(problem.text(op, name, sizes.B, sizes.H, sizes.n, sizes.D, sizes.K, pad, layout=layout, fill=fill, diag=diag,
                              wdtype=wname, math=math if name == "f32" else "", epilogue=epilogue))


def forward(x, weight, bias, gate, residual, sizes, pad, layout, fill, diag, activation, math, pre) -> None:
    pre = pre and (activation != "none" or gate is not None)
    epilogue = ("bias" if bias is not None else "", activation if activation != "none" else "", "pre" if pre else "",
                "gate" if gate is not None else "", "residual" if residual is not None else "")
    _add("forward", x.dtype, weight.dtype, sizes, pad, layout, fill, diag, math, epilogue)


def grad_input(grad, weight, residual, sizes, pad, layout, fill, diag, math) -> None:
    _add("grad_input", grad.dtype, weight.dtype, sizes, pad, layout, fill, diag, math, ("residual" if residual is not None else "",))


def grad_weight(x, weight_dtype, bias, sizes, pad, layout, fill, diag, math) -> None:
    _add("grad_weight", x.dtype, weight_dtype, sizes, pad, layout, fill, diag, math, ("bias" if bias else "", "zero_outside"))
