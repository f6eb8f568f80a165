"""Order in which snapshots compute while rows of others are sent, in predicted time alone.

Early-Ready & Short-Comm (Huang et al. 2026, section 3.4): the unfinished snapshot that is ready first runs next, ties
by the shortest transfer, until it waits for rows again. Messages share one link, one after the other. No clock is read:
ranks with the same predictor and sizes decide alike, so their messages match without coordination.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class SnapshotSize:
    """Cells, incoming arcs and sent rows of a snapshot, on one rank or averaged over ranks."""

    cells: float
    arcs: float
    rows: float


class TimePredictor(Protocol):
    """Predicts computing and transfer times."""

    def seconds_to_first_exchange(self, size: SnapshotSize, columns: int) -> float:
        """Seconds from the start of a stage on rows of ``columns`` columns to its first exchange."""
        ...

    def seconds_after_arrival(self, size: SnapshotSize, columns: int) -> float:
        """Seconds from the arrival of rows of ``columns`` columns to the next exchange or the end."""
        ...

    def transfer_seconds(self, num_bytes: float) -> float:
        """Seconds that a message occupies the link."""
        ...


@dataclass
class _Snapshot:
    size: SnapshotSize
    columns: int  # of its next rows
    ready: float  # predicted arrival of its next rows
    transfer_s: float  # predicted transfer time of its next rows
    began: bool = False


class Timetable:
    """The order of one stage of a window: run snapshot ``next()`` until it waits or ends, then mark it."""

    def __init__(self, sizes: Sequence[SnapshotSize], columns: int, item_bytes: int, predictor: TimePredictor) -> None:
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
