"""Snapshots cut into windows (one batch each) and segments (recomputed as one)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from strobe.batching import BatchSpec
from strobe.batching.base import split_times
from strobe.engine.example_cache import ByteBudget, ExampleCache
from strobe.engine.partitioned_graph import Mask, PartitionedGraph, khop_masks
from strobe.view import Carry, WindowData

if TYPE_CHECKING:
    from strobe.engine.examples import LocalExamples


@dataclass(frozen=True)
class Segment:
    """Consecutive snapshots ``times`` that are computed at once, prepared as ``data``.

    Training targets are the snapshots ``target_times`` (None: all) and there the nodes of ``target_mask`` (None: all),
    or what ``examples_fn`` gives. ``resets_state``: states start from ``initial_state`` or zero.
    """

    times: range
    data: WindowData
    example_cache: ExampleCache = field(default_factory=ExampleCache, repr=False, compare=False)
    target_times: range | None = None
    target_mask: Mask | None = None
    resets_state: bool = False
    initial_state: Carry | None = field(default=None, repr=False, compare=False)
    examples_fn: Callable[[], LocalExamples | None] | None = field(default=None, repr=False, compare=False)

    def targets_in(self, part: range) -> list[int]:
        """The target snapshots that lie in a part."""
        targets = self.times if self.target_times is None else self.target_times
        ranges = (self.times, targets, part)
        return list(range(max(each.start for each in ranges), min(each.stop for each in ranges)))


Window = tuple[Segment, ...]


def cut_windows(sharing: PartitionedGraph, times: range, size: int | None, segment: int | None) -> list[Window]:
    """Windows of at most ``size`` snapshots over ``times``, in order, each of segments of at most ``segment``."""
    windows = list(iter_windows(sharing, times, size, segment, sharing.example_budget))
    for part in (part for window in windows for part in window):
        part.data.offloaded = sharing.offloader
    return windows


def iter_windows(
    sharing: PartitionedGraph, times: range, size: int | None, segment: int | None, room: ByteBudget | None = None
) -> Iterator[Window]:
    """Yield windows one at a time: without references to earlier ones only one is in memory. ``room`` is the byte
    budget of their examples."""
    kept = ExampleCache(room)
    for window in split_times(times, size):
        yield tuple(Segment(part, sharing.window_data(part), kept) for part in split_times(window, segment))


def window_of_batch(sharing: PartitionedGraph, batch: BatchSpec, segment: int | None) -> Window:
    """The window of a batch. A batch of some nodes is one segment: it is small already."""
    targets, found, kept = None, [], ExampleCache(sharing.example_budget)
    if batch.seed_nodes is not None:
        targets = np.zeros(sharing.graph.num_nodes, bool)
        targets[batch.seed_nodes] = True
    for part in split_times(batch.times, segment if batch.seed_nodes is None else None):
        chosen = None if batch.seed_nodes is None else khop_masks(sharing.graph, part, batch.seed_nodes, batch.hops)
        fresh = not batch.continues_state and part.start == batch.times.start
        cells = sharing.window_data(part, masks=chosen, resets_state=fresh)
        cells.offloaded = sharing.offloader
        found.append(Segment(part, cells, kept, batch.target_times, targets, fresh))
    return tuple(found)
