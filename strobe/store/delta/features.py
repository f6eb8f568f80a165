"""Feature rows of a window: the first snapshot, then changed segments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from strobe.errors import InputError, OptionError
from strobe.graph.arrays import Array, read_only
from strobe.ops.sparse.csr import IntArray
from strobe.store.delta.codecs import CompactMask
from strobe.store.delta.diff import DeltaWindow, KeyDiff, diff_keys, merge_keys
from strobe.store.delta.row_segments import (
    PackedRows,
    SegmentBounds,
    SegmentIndex,
    SparseSegments,
    changed_segments,
    scatter_rows,
    segment_bounds,
)

NodeRows = tuple[int, IntArray, Array]
"""(snapshot, nodes, full rows)."""


@dataclass(frozen=True, eq=False)
class _FeatureDelta:
    """Difference of a snapshot to the previous one."""

    t: int
    deleted: CompactMask  # over previous nodes
    inserted: IntArray  # ids
    changed: SparseSegments  # over current nodes; nonzero segments of inserted nodes

    def arrays(self) -> Iterator[Array]:
        yield from (self.deleted.data, self.inserted, *self.changed.arrays())


class FeatureWindow(DeltaWindow[tuple[int, IntArray, PackedRows], _FeatureDelta]):
    """Nodes and feature rows of the snapshots of a window, on one rank.

    A row is cut into ``segments`` (fewer if it is shorter). The first snapshot has full rows. A later one stores full
    rows of inserted nodes, and of others the segments whose bits changed; all-zero segments are omitted. The location
    of an unchanged segment is not stored but derived from one bit per node and segment.

    Cost of a snapshot: changed segments, S bits per node, and ids of inserted nodes. To rebuild rows: one pass over S
    numbers per node and snapshot back to the first, then each row is copied once.
    """

    def __init__(self, segments: int = 4) -> None:
        if segments < 1:
            raise OptionError(f"segments of a row must be at least 1, not {segments}")
        super().__init__()
        self._segments = segments
        self._index_cache: tuple[list[int], dict[int, SegmentIndex]] | None = None  # by window

    def add(self, t: int, nodes: IntArray, x: Array) -> None:
        """Add the next snapshot: ascending node ids and their rows, [n, F]."""
        if self._first is None:
            _check_rows(nodes, x)
            self._first = t, _copy(nodes), PackedRows.of(x, self._bounds(x))
            return
        self._check_next(t, nodes, x)
        nodes_before, before = self.nodes(self.times[-1]), self.rows(self.times[-1])
        diff = diff_keys(nodes_before, nodes)
        bounds = self._bounds(x)
        changed = SparseSegments.of(x, changed_segments(diff, before, x, bounds), bounds)
        inserted = nodes[diff.new].astype(nodes_before.dtype, copy=False)
        self._later.append(_FeatureDelta(t, CompactMask.of(~diff.stay), inserted, changed))

    def _materialize(self, t: int) -> tuple[int, IntArray, PackedRows]:
        rows = self.rows(t)
        return t, _copy(self.nodes(t)), PackedRows.of(rows, self._bounds(rows), copy=False)

    def nodes(self, t: int) -> IntArray:
        """Nodes of snapshot t, ascending."""
        self._check_known(t)
        assert self._first is not None
        return read_only(_replay(self._first[1], self._later[: self.times.index(t)])[0])

    def rows(self, t: int, nodes: IntArray | None = None, start_from: NodeRows | None = None) -> Array:
        """Rebuild the rows of snapshot t, of all or of some nodes, from the first snapshot or ``start_from``."""
        start, present, full = self._start(t, start_from)
        later = self._later[start : self.times.index(t)]
        present, steps = _replay(present, later)
        selected = None if nodes is None else _find_positions(present, nodes, t)
        if selected is None and not later:
            return read_only(full)
        positions = iter(_target_positions(present.size, selected, steps))
        rows: Array = np.zeros((present.size if selected is None else selected.size, full.shape[1]), full.dtype)
        scatter_rows(rows, full, next(positions))
        for each, position in zip(later, positions, strict=True):
            each.changed.scatter_into(rows, self._bounds(full), position)
        return rows

    def select(self, t: int, positions: IntArray) -> Array:
        """Select rows of snapshot t by position, in any order; the index of segments is cached until the window
        slides."""
        if self._index_cache is None or self._index_cache[0] != self.times:
            self._index_cache = self.times, {}
        if t not in self._index_cache[1]:
            self._check_known(t)
            assert self._first is not None
            _, nodes, full = self._first
            later = self._later[: self.times.index(t)]
            index = SegmentIndex(full)
            for each, diff in zip(later, _replay(nodes, later)[1], strict=True):
                index.advance(diff, each.changed)
            self._index_cache[1][t] = index
        return self._index_cache[1][t].select(positions)

    def arrays(self) -> Iterator[Array]:
        if self._first is not None:
            yield self._first[1]
            yield from self._first[2].arrays()
        for later in self._later:
            yield from later.arrays()

    def _start(self, t: int, start_from: NodeRows | None = None) -> tuple[int, IntArray, Array]:
        """Start of rebuilding snapshot t: index in the window, nodes and rows."""
        self._check_known(t)
        if start_from is not None and start_from[0] in self.times and start_from[0] <= t:
            return self.times.index(start_from[0]), *start_from[1:]
        assert self._first is not None
        return 0, self._first[1], self._first[2].unpack()

    def _bounds(self, x: Array) -> SegmentBounds:
        return segment_bounds(x.shape[1], self._segments)

    def _check_next(self, t: int, nodes: IntArray, x: Array) -> None:
        _check_rows(nodes, x)
        assert self._first is not None
        self._check_order(t)
        full = self._first[2]
        if x.shape[1] != full.width or x.dtype != full.dtype:
            raise InputError(f"snapshot {t} has rows of {x.shape[1]} {x.dtype}, earlier ones {full.width} {full.dtype}")


def _replay(nodes: IntArray, later: list[_FeatureDelta]) -> tuple[IntArray, list[KeyDiff]]:
    """Nodes after all differences, and the key difference of each."""
    steps = []
    for each in later:
        nodes, diff = merge_keys(nodes, each.deleted, each.inserted)
        steps.append(diff)
    return nodes, steps


def _target_positions(size: int, selected: IntArray | None, steps: list[KeyDiff]) -> list[IntArray | None]:
    """Positions of the nodes of each snapshot among the selected nodes of the last, -1 if not selected or deleted in
    between; None: all, in order."""
    place: IntArray | None = None
    if selected is not None:
        place = np.full(size, -1)
        place[selected] = np.arange(selected.size)
    places = [place]
    for diff in reversed(steps):
        if not diff.is_empty:
            place = diff.map_positions(np.arange(diff.new.size) if place is None else place)
        places.append(place)
    return places[::-1]


def _copy(array: Array) -> Array:
    """Contiguous copy, which keeps no base array alive."""
    return np.array(array, order="C")


def _find_positions(present: IntArray, nodes: IntArray, t: int) -> IntArray:
    at = np.searchsorted(present, nodes)
    missing = (
        (at == present.size) | (present[np.minimum(at, present.size - 1)] != nodes) if present.size else nodes == nodes
    )
    if missing.any():
        raise InputError(f"node {nodes[missing][0]} is not in snapshot {t} of this window")
    return at


def _check_rows(nodes: IntArray, x: Array) -> None:
    if x.ndim != 2 or len(x) != len(nodes):
        raise InputError(f"{len(nodes):,} nodes need {len(nodes):,} feature rows, not an array of shape {x.shape}")
    if (nodes[1:] <= nodes[:-1]).any():
        raise InputError("nodes must be ascending and distinct")
