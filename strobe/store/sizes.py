"""What a window of snapshots takes in memory, whole and as differences."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from strobe.graph import DynamicGraph
from strobe.store.older import Older, Whole, whole
from strobe.store.window import Window


@dataclass(frozen=True)
class WindowBytes:
    """Bytes of a window that ends with snapshot ``t``: nodes with the features stored per cell, and arcs.

    In full as they are given: ids of nodes unless all are present, rows of features; row pointers, columns, weights.
    As differences: all arrays that are allocated.
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
        """The share of bytes that differences spare; negative where they take more."""
        return 1 - self.delta / self.full if self.full else 0.0


def window_bytes(graph: DynamicGraph, window: int, segments: int = 4) -> Iterator[WindowBytes]:
    """Bytes of every full window of a graph, as it slides on; of all snapshots, where there are fewer."""
    kept = Window(
        num_nodes=graph.num_nodes, directed=graph.directed, size=window, older=_Forgotten(), segments=segments
    )
    full: deque[tuple[int, int]] = deque(maxlen=window)
    for snapshot in graph:
        given = whole(snapshot)
        kept.add(given)
        ids = 0 if snapshot.has_all_nodes else given.nodes.nbytes
        weights = 0 if given.weight is None else given.weight.nbytes
        full.append((ids + given.x.nbytes, given.row_ptr.nbytes + given.col.nbytes + weights))
        if len(full) == min(window, len(graph)):
            features, arcs = (sum(sizes) for sizes in zip(*full, strict=True))
            yield WindowBytes(snapshot.t, features, kept.features_bytes, arcs, kept.arcs_bytes)


class _Forgotten(Older):
    """Nobody asks for older snapshots here."""

    def write(self, t: int, snapshot: Whole) -> None:
        """Lets go of it."""

    def read(self, t: int) -> Whole:
        raise AssertionError("a snapshot that was let go of")
