"""Bytes of a window of snapshots, in full and as differences."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from strobe.graph import DynamicGraph
from strobe.store.delta.strategy import SnapshotArrays, SnapshotWindow, Spill, to_arrays


@dataclass(frozen=True)
class WindowBytes:
    """Bytes of a window that ends with snapshot ``t``: nodes with per-cell features, and arcs.

    In full: node ids unless all are present, feature rows, row pointers, columns, weights. As differences: all arrays.
    """

    t: int
    features_full: int
    features_delta: int
    arcs_full: int
    arcs_delta: int

    @property
    def full(self) -> int:
        return self.features_full + self.arcs_full

    @property
    def delta(self) -> int:
        return self.features_delta + self.arcs_delta

    @property
    def saved(self) -> float:
        """Share of bytes saved by differences; may be negative."""
        return 1 - self.delta / self.full if self.full else 0.0


def window_bytes(graph: DynamicGraph, window: int, segments: int = 4) -> Iterator[WindowBytes]:
    """Bytes of every full window of a graph; of all snapshots if there are fewer."""
    store = SnapshotWindow(
        num_nodes=graph.num_nodes, directed=graph.directed, size=window, spill=_NoSpill(), segments=segments
    )
    full: deque[tuple[int, int]] = deque(maxlen=window)
    for snapshot in graph:
        arrays = to_arrays(snapshot)
        store.add(arrays)
        ids = 0 if snapshot.has_all_nodes else arrays.nodes.nbytes
        weights = 0 if arrays.weight is None else arrays.weight.nbytes
        full.append((ids + arrays.x.nbytes, arrays.row_ptr.nbytes + arrays.col.nbytes + weights))
        if len(full) == min(window, len(graph)):
            features, arcs = (sum(sizes) for sizes in zip(*full, strict=True))
            yield WindowBytes(snapshot.t, features, store.features_bytes, arcs, store.arcs_bytes)


class _NoSpill(Spill):
    """Discards snapshots."""

    def write(self, t: int, snapshot: SnapshotArrays) -> None:
        """Discard the snapshot."""

    def read(self, t: int) -> SnapshotArrays:
        raise AssertionError("older snapshots are not stored")
