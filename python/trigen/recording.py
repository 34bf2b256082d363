"""Records the problems that a run meets: their canonical texts and how often each came, never data.

    with trigen.record() as seen:
        train_step(model, batch)
    seen.save("problems.txt")      # a problem list: `trigen tune --problems problems.txt`
    seen.tune()

Recording is per process, not per thread (PyTorch runs backward passes in threads of its own). It works on a CPU too: the
list is the one that a GPU would have given. Under CUDA graphs only the capture is seen, since a replay calls no operator.
"""

from __future__ import annotations

import os
import threading
from typing import Dict, List, Optional, Sequence, Union

from . import notebook, tuning

# The recorder that operators report to, or None. Operators read it once per call.
active: Optional["Recorder"] = None


class Recorder:
    """Problems met while recording, in order of first appearance."""

    def __init__(self) -> None:
        self.counts: Dict[str, int] = {}
        self._lock = threading.Lock()
        self._outer: Optional[Recorder] = None

    def __repr__(self) -> str:
        return f"<trigen.Recorder of {len(self.counts)} problems in {sum(self.counts.values())} calls>"

    def _repr_html_(self) -> str:
        return notebook.table(("problem", "calls"), sorted(self.counts.items(), key=lambda item: -item[1]))

    def add(self, text: str) -> None:
        """Counts one call of a problem."""
        with self._lock:
            self.counts[text] = self.counts.get(text, 0) + 1
        if self._outer is not None:
            self._outer.add(text)

    @property
    def problems(self) -> List[str]:
        """Canonical texts."""
        return list(self.counts)

    def to_text(self) -> str:
        """A problem list, most frequent problem first."""
        lines = sorted(self.counts.items(), key=lambda item: -item[1])
        return "".join(f"{text}  # met {count} time{'' if count == 1 else 's'}\n" for text, count in lines)

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes to_text() into a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_text())

    def tune(
        self,
        *,
        arch: Optional[str] = None,
        budget: Optional[str] = None,
        options: Sequence[str] = (),
        quiet: bool = False,
    ) -> tuning.TuneResult:
        """Tunes what was recorded; options as trigen.tune_problems."""
        return tuning.tune_problems(self.problems, arch=arch, budget=budget, options=options, quiet=quiet)

    def __enter__(self) -> "Recorder":
        global active
        self._outer = active
        active = self
        return self

    def __exit__(self, *exception: object) -> None:
        global active
        active = self._outer
        self._outer = None


def record() -> Recorder:
    """A context manager that records problems; nested ones see what inner ones see."""
    return Recorder()
