"""Predicted time of snapshots whose rows are sent while others compute, and the order in which they run.

Computing and transfer times are lines, fitted to measurements of all ranks. The paper uses a small neural network;
sparse products, dense products and messages take time in proportion to the numbers they touch, so a line suffices:
three coefficients instead of thousands, known after one epoch, monotone, and fitted from a few sums that ranks can
all-reduce.

The order is Early-Ready & Short-Comm (Huang et al. 2026, section 3.4): the unfinished snapshot that is ready first runs
next, ties by the shortest transfer, until it waits for rows again. Messages share one link, one after the other. No
clock is read: ranks with the same predictions and sizes decide alike, so their messages match without coordination.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import torch

from strobe.comm import Comm
from strobe.ops.sparse.csr import FloatArray

_DEFAULT_COEFFICIENTS: dict[str, tuple[float, ...]] = {
    "first": (1e-5, 1e-10, 0.0),  # constant, per number in rows, per number along arcs
    "arrived": (1e-5, 1e-9, 1e-9),
    "message": (1e-4, 8e-9),  # constant, per byte: a link of 1 Gb/s
}
"""Coefficients before the first measurement, in seconds."""

_MIN_WAIT_S = 1e-4
"""Shorter waits mean that rows had already arrived: their transfer time is unknown."""


@dataclass(frozen=True)
class SnapshotSize:
    """Cells, incoming arcs and sent rows of a snapshot, on one rank or averaged over ranks."""

    cells: float
    arcs: float
    rows: float


class TimingModel:
    """Measured computing and transfer times of this rank, and predictions that are equal on all ranks.

    Sums of the normal equations are all-reduced when an epoch begins; rank 0 fits, so that all ranks have the same
    bits. Predictions change only between epochs: recomputation in backward keeps the order.
    """

    _by_comm: ClassVar[WeakKeyDictionary[Comm, TimingModel]] = WeakKeyDictionary()

    def __init__(self, comm: Comm) -> None:
        self.comm = comm
        self._lines = {what: np.array(usual) for what, usual in _DEFAULT_COEFFICIENTS.items()}
        self._sums = {what: np.zeros((len(usual) + 1, len(usual) + 1)) for what, usual in _DEFAULT_COEFFICIENTS.items()}
        self._stages = 0  # since the last fit, the same on all ranks
        self._last_arrival = 0.0
        self.waited_s = 0.0
        """Seconds that this rank has waited for rows."""

    @classmethod
    def for_comm(cls, comm: Comm) -> TimingModel:
        """The model of a run, shared by all its windows. A run has one comm."""
        if comm not in cls._by_comm:
            cls._by_comm[comm] = cls(comm)
        return cls._by_comm[comm]

    def record_compute(self, size: SnapshotSize, columns: int, seconds: float, *, began: bool) -> None:
        """Record computing time without waits, from the start of a stage or (``began``) from the arrival of rows."""
        self._record("arrived" if began else "first", _regressors(size, columns), seconds)

    def record_arrival(self, num_bytes: int, departed: float, requested: float, now: float) -> None:
        """Record the arrival of rows that were sent at ``departed`` and waited for since ``requested``.

        Messages share the link: the transfer began when the rows were sent or when the previous message arrived.
        """
        self.waited_s += now - requested
        if now - requested > _MIN_WAIT_S and num_bytes:
            self._record("message", (1.0, num_bytes), now - max(departed, self._last_arrival))
        self._last_arrival = now

    def end_stage(self) -> None:
        """A stage of a window ends, on all ranks."""
        self._stages += 1

    def begin_epoch(self) -> None:
        """Fit to the measurements of all ranks, if there are new ones. All ranks must call it."""
        if not self._stages:
            return
        self._stages = 0
        flat = np.concatenate([sums.ravel() for sums in self._sums.values()])
        total = self.comm.all_reduce(torch.from_numpy(flat), kind="scalars").numpy()
        parts = np.split(total, np.cumsum([sums.size for sums in self._sums.values()])[:-1])
        fitted = {
            what: fit_line(part.reshape(each.shape))
            for (what, each), part in zip(self._sums.items(), parts, strict=True)
        }
        lines = {what: self._lines[what] if line is None else line for what, line in fitted.items()}
        shared = self.comm.broadcast_object({what: line.tolist() for what, line in lines.items()}, kind="scalars")
        self._lines = {what: np.array(line) for what, line in shared.items()}

    def seconds_to_first_exchange(self, size: SnapshotSize, columns: int) -> float:
        return float(self._lines["first"] @ _regressors(size, columns))

    def seconds_after_arrival(self, size: SnapshotSize, columns: int) -> float:
        return float(self._lines["arrived"] @ _regressors(size, columns))

    def transfer_seconds(self, num_bytes: float) -> float:
        return float(self._lines["message"] @ (1.0, num_bytes)) if num_bytes else 0.0

    def state_dict(self) -> dict[str, Any] | None:
        """None before the first measurement."""
        if not self._stages and not self._sums["arrived"].any():
            return None
        return {
            "lines": {what: line.tolist() for what, line in self._lines.items()},
            "sums": {what: sums.tolist() for what, sums in self._sums.items()},
            "stages": self._stages,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._lines = {what: np.array(line) for what, line in state["lines"].items()}
        self._sums = {what: np.array(sums) for what, sums in state["sums"].items()}
        self._stages = int(state["stages"])

    def _record(self, what: str, touched: tuple[float, ...], seconds: float) -> None:
        row = np.array([*touched, seconds])
        self._sums[what] += np.outer(row, row)


def _regressors(size: SnapshotSize, columns: int) -> tuple[float, float, float]:
    return 1.0, size.cells * columns, size.arcs * columns


def fit_line(sums: FloatArray) -> FloatArray | None:
    """Least squares with non-negative coefficients, from the sums of products of (inputs ..., seconds).

    Tries every subset of the few inputs. None without measurements.
    """
    square, towards = sums[:-1, :-1], sums[:-1, -1]
    if not square[0, 0]:
        return None
    scale = np.sqrt(np.diag(square))
    scale[scale == 0] = 1.0
    square, towards = square / np.outer(scale, scale), towards / scale
    best, least = np.zeros(len(scale)), 0.0
    for number in range(1, len(scale) + 1):
        for subset in combinations(range(len(scale)), number):
            fit = np.linalg.lstsq(square[np.ix_(subset, subset)], towards[list(subset)], rcond=1e-10)[0]
            residual = fit @ square[np.ix_(subset, subset)] @ fit - 2 * fit @ towards[list(subset)]
            if (fit >= 0).all() and residual < least:
                best, least = np.zeros(len(scale)), float(residual)
                best[list(subset)] = fit
    return best / scale


@dataclass
class _Snapshot:
    size: SnapshotSize
    columns: int  # of its next rows
    ready: float  # predicted arrival of its next rows
    transfer_s: float  # predicted transfer time of its next rows
    began: bool = False


class Timetable:
    """The order of one stage of a window: run snapshot ``next()`` until it waits or ends, then mark it."""

    def __init__(self, sizes: Sequence[SnapshotSize], columns: int, item_bytes: int, predictor: TimingModel) -> None:
        self._predictor, self._item_bytes = predictor, item_bytes
        self._left = {
            t: _Snapshot(size, columns, 0.0, self._transfer_seconds(size, columns)) for t, size in enumerate(sizes)
        }
        self._now = self._link_free = 0.0

    def next(self) -> int | None:
        """The snapshot to run next; None if all are done."""
        if not self._left:
            return None
        return min(self._left, key=self._priority)

    def mark_waiting(self, t: int, columns: int) -> None:
        """Snapshot t ran, sent rows of ``columns`` columns, and waits for remote rows."""
        snapshot = self._advance(t)
        snapshot.columns, snapshot.transfer_s = columns, self._transfer_seconds(snapshot.size, columns)
        self._link_free = snapshot.ready = max(self._now, self._link_free) + snapshot.transfer_s

    def mark_done(self, t: int) -> None:
        """Snapshot t ran to its end."""
        self._advance(t)
        del self._left[t]

    def _advance(self, t: int) -> _Snapshot:
        snapshot = self._left[t]
        seconds = self._predictor.seconds_after_arrival if snapshot.began else self._predictor.seconds_to_first_exchange
        self._now = max(self._now, snapshot.ready) + seconds(snapshot.size, snapshot.columns)
        snapshot.began = True
        return snapshot

    def _priority(self, t: int) -> tuple[float, float, float, int]:
        # Rows break ties: with one exchange each, the order does not depend on measurements, so a repeated run adds
        # gradients in the same order.
        snapshot = self._left[t]
        return snapshot.ready, snapshot.transfer_s, snapshot.size.rows, t

    def _transfer_seconds(self, size: SnapshotSize, columns: int) -> float:
        return self._predictor.transfer_seconds(size.rows * columns * self._item_bytes)
