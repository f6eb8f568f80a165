"""Snapshots cut into windows (one batch each) and segments (recomputed as one)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from strobe.batching import Batch
from strobe.batching.base import pieces
from strobe.engine.kept import KeptExamples, Room
from strobe.engine.sharing import Mask, Sharing, around
from strobe.view import Carry, Cells

if TYPE_CHECKING:
    from strobe.engine.asked import Asked


@dataclass(frozen=True)
class Segment:
    """Consecutive snapshots that are computed in one go: ``times`` of the graph, prepared as ``cells``.

    Training asks about those in ``asked`` (None: all), and there about ``targets`` (None: all nodes); or it asks a
    ``question``. ``fresh``: states begin anew, or with ``start``.
    """

    times: range
    cells: Cells
    kept: KeptExamples = field(default_factory=KeptExamples, repr=False, compare=False)
    asked: range | None = None
    targets: Mask | None = None
    fresh: bool = False
    start: Carry | None = field(default=None, repr=False, compare=False)
    question: Callable[[], Asked | None] | None = field(default=None, repr=False, compare=False)


Window = tuple[Segment, ...]


def cut(sharing: Sharing, times: range, size: int | None, segment: int | None) -> list[Window]:
    """Windows of at most ``size`` snapshots over ``times``, in order, each of segments of at most ``segment``."""
    windows = list(stream(sharing, times, size, segment, sharing.room))
    for part in (part for window in windows for part in window):
        part.cells.streamed = sharing.streamed
    return windows


def stream(
    sharing: Sharing, times: range, size: int | None, segment: int | None, room: Room | None = None
) -> Iterator[Window]:
    """The same windows one at a time: whoever does not keep them never holds more than one in memory. ``room`` is what
    there is for their examples."""
    kept = KeptExamples(room)
    for window in pieces(times, size):
        yield tuple(Segment(part, sharing.cells(part), kept) for part in pieces(window, segment))


def window_of(sharing: Sharing, batch: Batch, segment: int | None) -> Window:
    """The window of a batch. A batch of some nodes is one segment: it is small already."""
    targets, found, kept = None, [], KeptExamples(sharing.room)
    if batch.targets is not None:
        targets = np.zeros(sharing.graph.num_nodes, bool)
        targets[batch.targets] = True
    for part in pieces(batch.times, segment if batch.targets is None else None):
        chosen = None if batch.targets is None else around(sharing.graph, part, batch.targets, batch.hops)
        fresh = not batch.carries and part.start == batch.times.start
        cells = sharing.cells(part, chosen=chosen, fresh=fresh)
        cells.streamed = sharing.streamed
        found.append(Segment(part, cells, kept, batch.asked, targets, fresh))
    return tuple(found)
