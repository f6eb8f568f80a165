"""Which snapshot goes on while rows of the others travel: decided in predicted time alone, without a rank or a clock.

Early-Ready & Short-Comm (Huang et al. 2026, section 3.4): of all snapshots that are not done, the one that is ready
first goes on, and of those the one whose rows take the shortest, until it waits for rows again. There is one link, and
one message after the other takes it. No clock is read, so ranks that predict alike and know the same sizes decide
alike: their messages meet, and nobody has to ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Extent:
    """What a snapshot has on a rank, or on all ranks in the mean: cells, arcs that end in them, rows that travel."""

    cells: float
    arcs: float
    rows: float


class Predictor(Protocol):
    """Says how long things take."""

    def until_first(self, extent: Extent, columns: int) -> float:
        """Seconds from the beginning of a stage, on rows so wide, to its first exchange."""
        ...

    def after_arrival(self, extent: Extent, columns: int) -> float:
        """Seconds from the arrival of rows so wide to the next exchange, or the end."""
        ...

    def on_the_way(self, num_bytes: float) -> float:
        """Seconds that a message has the link for itself."""
        ...


@dataclass
class _Snapshot:
    extent: Extent
    columns: int  # of the rows it works on next
    ready: float  # when those are here
    travels: float  # how long they take, or will
    began: bool = False


class Timetable:
    """The order of one stage of a window. Whoever runs it asks for the ``next`` snapshot, lets that go on until it
    waits or ends, and says so."""

    def __init__(self, extents: Sequence[Extent], columns: int, item_bytes: int, predictor: Predictor) -> None:
        self._predictor, self._item_bytes = predictor, item_bytes
        self._left = {
            t: _Snapshot(extent, columns, 0.0, self._travels(extent, columns)) for t, extent in enumerate(extents)
        }
        self._now = self._link_free = 0.0

    def next(self) -> int | None:
        """The snapshot that goes on; None where all are done."""
        if not self._left:
            return None
        return min(self._left, key=self._priority)

    def waits(self, t: int, columns: int) -> None:
        """Snapshot t went on; rows so wide have left, and it waits for those of others."""
        snapshot = self._went_on(t)
        snapshot.columns, snapshot.travels = columns, self._travels(snapshot.extent, columns)
        self._link_free = snapshot.ready = max(self._now, self._link_free) + snapshot.travels

    def ended(self, t: int) -> None:
        """Snapshot t went on, and is done."""
        self._went_on(t)
        del self._left[t]

    def _went_on(self, t: int) -> _Snapshot:
        snapshot = self._left[t]
        seconds = self._predictor.after_arrival if snapshot.began else self._predictor.until_first
        self._now = max(self._now, snapshot.ready) + seconds(snapshot.extent, snapshot.columns)
        snapshot.began = True
        return snapshot

    def _priority(self, t: int) -> tuple[float, float, float, int]:
        # Rows break ties. So with one exchange each, snapshots go by their rows, whatever was measured, and a run that
        # is repeated adds up gradients in the same order.
        snapshot = self._left[t]
        return snapshot.ready, snapshot.travels, snapshot.extent.rows, t

    def _travels(self, extent: Extent, columns: int) -> float:
        return self._predictor.on_the_way(extent.rows * columns * self._item_bytes)
