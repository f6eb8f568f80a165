"""How long a snapshot computes and how long its rows travel: straight lines through what was measured.

The paper predicts with a small neural network. What is predicted here are sparse and dense products and messages, whose
seconds grow with the numbers they touch and hardly with anything else; a line has three coefficients instead of
thousands, knows them after one epoch, cannot say that more work takes less time, and all it has to be told of the past
are a few sums, which ranks can add up.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import torch

from strobe.comm import Comm
from strobe.exchange.overlap_order import Extent
from strobe.ops.csr import FloatArray

_USUAL: dict[str, tuple[float, ...]] = {
    "first": (1e-5, 1e-10, 0.0),  # in any case, by number in its rows, by number in its arcs
    "arrived": (1e-5, 1e-9, 1e-9),
    "message": (1e-4, 8e-9),  # in any case, by byte: a link of 1 Gb/s
}
"""What is taken until something was measured, in seconds."""

_WAITED_S = 1e-4
"""Rows that are here within it were here before: how long they took nobody has seen."""


class Seconds:
    """What computing and sending took on this rank, and what all ranks predict from it, alike.

    Sums of the normal equations are kept and added up over ranks when an epoch begins; rank 0 fits, so that all have
    the same bits. Between epochs nothing changes: what is computed again takes the order that it took.
    """

    _of_runs: ClassVar[WeakKeyDictionary[Comm, Seconds]] = WeakKeyDictionary()

    def __init__(self, comm: Comm) -> None:
        self._comm = comm
        self._lines = {what: np.array(usual) for what, usual in _USUAL.items()}
        self._sums = {what: np.zeros((len(usual) + 1, len(usual) + 1)) for what, usual in _USUAL.items()}
        self._stages = 0  # since the last fit, the same on all ranks
        self._last_arrival = 0.0
        self.waited = 0.0
        """Seconds that this rank has waited for rows, for whoever times what it computes."""

    @classmethod
    def of(cls, comm: Comm) -> Seconds:
        """The ones of a run: all its windows learn from each other. A run has one comm."""
        if comm not in cls._of_runs:
            cls._of_runs[comm] = cls(comm)
        return cls._of_runs[comm]

    # What was measured.

    def computed(self, extent: Extent, columns: int, seconds: float, *, began: bool) -> None:
        """A snapshot went on for so long, not counting waits, from its beginning or from the arrival of rows."""
        self._count("arrived" if began else "first", _touched(extent, columns), seconds)

    def arrived(self, num_bytes: int, departed: float, asked: float, now: float) -> None:
        """Rows that left at one moment of the clock and were asked for at another are here now.

        A message waits for those before it: it had the link since it left or since the last one came.
        """
        self.waited += now - asked
        if now - asked > _WAITED_S and num_bytes:
            self._count("message", (1.0, num_bytes), now - max(departed, self._last_arrival))
        self._last_arrival = now

    def stage_ends(self) -> None:
        """A stage of a window is done, on all ranks."""
        self._stages += 1

    def epoch_begins(self) -> None:
        """Fits to all that ranks have measured; all of them must ask. Nothing happens where nothing was new."""
        if not self._stages:
            return
        self._stages = 0
        flat = np.concatenate([sums.ravel() for sums in self._sums.values()])
        total = self._comm.sum(torch.from_numpy(flat), kind="agree").numpy()
        parts = np.split(total, np.cumsum([sums.size for sums in self._sums.values()])[:-1])
        found = {
            what: fitted(part.reshape(each.shape)) for (what, each), part in zip(self._sums.items(), parts, strict=True)
        }
        lines = {what: self._lines[what] if line is None else line for what, line in found.items()}
        told = self._comm.share({what: line.tolist() for what, line in lines.items()}, kind="agree")
        self._lines = {what: np.array(line) for what, line in told.items()}

    # What is predicted.

    def until_first(self, extent: Extent, columns: int) -> float:
        return float(self._lines["first"] @ _touched(extent, columns))

    def after_arrival(self, extent: Extent, columns: int) -> float:
        return float(self._lines["arrived"] @ _touched(extent, columns))

    def on_the_way(self, num_bytes: float) -> float:
        return float(self._lines["message"] @ (1.0, num_bytes)) if num_bytes else 0.0

    # For a run that goes on in another process.

    def remembered(self) -> dict[str, Any] | None:
        """None where nothing was measured yet."""
        if not self._stages and not self._sums["arrived"].any():
            return None
        return {
            "lines": {what: line.tolist() for what, line in self._lines.items()},
            "sums": {what: sums.tolist() for what, sums in self._sums.items()},
            "stages": self._stages,
        }

    def remember(self, found: dict[str, Any]) -> None:
        self._lines = {what: np.array(line) for what, line in found["lines"].items()}
        self._sums = {what: np.array(sums) for what, sums in found["sums"].items()}
        self._stages = int(found["stages"])

    def _count(self, what: str, touched: tuple[float, ...], seconds: float) -> None:
        row = np.array([*touched, seconds])
        self._sums[what] += np.outer(row, row)


def _touched(extent: Extent, columns: int) -> tuple[float, float, float]:
    return 1.0, extent.cells * columns, extent.arcs * columns


def fitted(sums: FloatArray) -> FloatArray | None:
    """The line with the least squares whose coefficients are none below 0, from the sums of products of (inputs …,
    seconds) over all that was measured; None where nothing was. Few inputs: every choice of them is tried."""
    square, towards = sums[:-1, :-1], sums[:-1, -1]
    if not square[0, 0]:
        return None
    scale = np.sqrt(np.diag(square))
    scale[scale == 0] = 1.0
    square, towards = square / np.outer(scale, scale), towards / scale
    best, least = np.zeros(len(scale)), 0.0
    for number in range(1, len(scale) + 1):
        for chosen in combinations(range(len(scale)), number):
            found = np.linalg.lstsq(square[np.ix_(chosen, chosen)], towards[list(chosen)], rcond=1e-10)[0]
            left = found @ square[np.ix_(chosen, chosen)] @ found - 2 * found @ towards[list(chosen)]
            if (found >= 0).all() and left < least:
                best, least = np.zeros(len(scale)), float(left)
                best[list(chosen)] = found
    return best / scale
