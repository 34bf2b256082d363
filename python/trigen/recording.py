"""Records the problems that a run meets: their canonical texts and how often each came, never data.

    with trigen.record() as seen:
        train_step(model, batch)
    seen.save("problems.txt")      # a problem list: `trigen tune --problems problems.txt`
    seen.tune()

Recording is per process, not per thread (PyTorch runs backward passes in threads of its own). It works on a CPU too: the
list is the one that a GPU would have given. Under CUDA graphs only the capture is seen, since a replay calls no operator.
"""

from __future__ import annotations

import threading
from typing import Dict, List, Optional

from . import tuning

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
