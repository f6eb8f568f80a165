"""Feature rows of a window: the first snapshot, then changed segments of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from strobe.errors import InputError, OptionError
from strobe.graph.arrays import Array, read_only
from strobe.graph.diff import KeyDiff, Mask, bits, changed_segments, diff_keys
from strobe.ops.runtime.njit import cached_njit
from strobe.ops.sparse.csr import IntArray
from strobe.store.delta.base import CompactMask, DeltaWindow, merge_keys

SegmentBounds = list[tuple[int, int]]
"""(begin, end) of each segment of a row."""

NodeRows = tuple[int, IntArray, Array]
"""(snapshot, nodes, full rows)."""


def segment_bounds(width: int, segments: int) -> SegmentBounds:
    """Even, non-empty segments of a row."""
    segments = min(segments, width)
    return list(pairwise(segment * width // segments for segment in range(segments + 1))) if segments else []


@dataclass(frozen=True, eq=False)
class SparseSegments:
    """For each segment the rows that have it, and its values."""

    masks: tuple[CompactMask, ...]
    rows: tuple[Array, ...]  # [marked, width of the segment]

    @classmethod
    def of(cls, x: Array, chosen: Mask, bounds: SegmentBounds) -> SparseSegments:
        """The ``chosen`` segments of x, [S, n]."""
        rows = tuple(x[:, a:b][each] for each, (a, b) in zip(chosen, bounds, strict=True))
        return cls(tuple(CompactMask.of(each) for each in chosen), rows)

    def scatter_into(self, rows: Array, bounds: SegmentBounds, place: IntArray | None = None) -> None:
        """Scatter into ``rows`` at ``place`` of each row (-1: skip; None: in order)."""
        for (a, _), mask, values in zip(bounds, self.masks, self.rows, strict=True):
            _scatter_rows(rows, values, mask.indices() if place is None else place[mask.indices()], a)


@dataclass(frozen=True, eq=False)
class PackedRows:
    """Rows, [n, F], without all-zero segments, or dense if that is not larger."""

    num_rows: int
    dtype: np.dtype[np.generic]
    bounds: SegmentBounds
    data: Array | SparseSegments

    @classmethod
    def of(cls, x: Array, bounds: SegmentBounds, *, copy: bool = True) -> PackedRows:
        """Pack rows; ``copy``: copy dense rows, which the caller owns."""
        nonzero = changed_segments(KeyDiff.all_new(len(x)), x[:0], x, [b for _, b in bounds])
        saved = sum((b - a) * (len(x) - int(each.sum())) for (a, b), each in zip(bounds, nonzero, strict=True))
        if saved * x.itemsize > len(bounds) * -(-len(x) // 8):  # maximum size of the masks
            return cls(len(x), x.dtype, bounds, SparseSegments.of(x, nonzero, bounds))
        return cls(len(x), x.dtype, bounds, np.array(x, order="C") if copy else x)

    @property
    def width(self) -> int:
        return self.bounds[-1][1] if self.bounds else 0

    def unpack(self) -> Array:
        """Dense rows; not copied if stored dense."""
        if isinstance(self.data, np.ndarray):
            return self.data
        rows: Array = np.zeros((self.num_rows, self.width), self.dtype)
        self.data.scatter_into(rows, self.bounds)
        return rows


@dataclass(frozen=True, eq=False)
class _FeatureDelta:
    """Difference of a snapshot to the previous one."""

    t: int
    deleted: CompactMask  # over previous nodes
    inserted: IntArray  # ids
    changed: SparseSegments  # over current nodes; nonzero segments of inserted nodes


class FeatureWindow(DeltaWindow[tuple[int, IntArray, PackedRows], NodeRows, _FeatureDelta]):
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
        _check_rows(nodes, x)
        bounds = segment_bounds(x.shape[1], self._segments)
        if self._first is None:
            self._first = t, _copy(nodes), PackedRows.of(x, bounds)
            return
        self._check_order(t)
        first = self._first[2]
        if x.shape[1] != first.width or x.dtype != first.dtype:
            raise InputError(
                f"snapshot {t} has rows of {x.shape[1]} {x.dtype}, earlier ones {first.width} {first.dtype}"
            )
        nodes_before, before = self.nodes(self.times[-1]), self.rows(self.times[-1])
        diff = diff_keys(nodes_before, nodes)
        changed = SparseSegments.of(x, changed_segments(diff, before, x, [b for _, b in bounds]), bounds)
        inserted = nodes[diff.new].astype(nodes_before.dtype, copy=False)
        self._later.append(_FeatureDelta(t, CompactMask.of(~diff.stay), inserted, changed))

    def nodes(self, t: int) -> IntArray:
        """Nodes of snapshot t, ascending."""
        later = self._later[: self._index(t)]
        assert self._first is not None
        return read_only(_replay(self._first[1], later)[0])

    def rows(self, t: int, start_from: NodeRows | None = None) -> Array:
        """Rebuild the rows of snapshot t from the first snapshot or ``start_from``."""
        (_, nodes, full), later = self._rebuild_path(t, start_from)
        if not later:
            return read_only(full)
        nodes, steps = _replay(nodes, later)
        first, *positions = _positions_in_last(steps)
        rows: Array = np.zeros((nodes.size, full.shape[1]), full.dtype)
        _scatter_rows(rows, full, first)
        for each, position in zip(later, positions, strict=True):
            each.changed.scatter_into(rows, segment_bounds(full.shape[1], self._segments), position)
        return rows

    def select(self, t: int, positions: IntArray) -> Array:
        """Select rows of snapshot t by position, in any order; the index of segments is cached until the window
        slides."""
        if self._index_cache is None or self._index_cache[0] != self.times:
            self._index_cache = self.times, {}
        if t not in self._index_cache[1]:
            later = self._later[: self._index(t)]
            assert self._first is not None
            index = SegmentIndex(self._first[2])
            for each, diff in zip(later, _replay(self._first[1], later)[1], strict=True):
                index.advance(diff, each.changed)
            self._index_cache[1][t] = index
        return self._index_cache[1][t].select(positions)

    def _materialize(self, t: int) -> tuple[int, IntArray, PackedRows]:
        rows = self.rows(t)
        return t, _copy(self.nodes(t)), PackedRows.of(rows, segment_bounds(rows.shape[1], self._segments), copy=False)

    def _unpack_first(self) -> NodeRows:
        assert self._first is not None
        t, nodes, rows = self._first
        return t, nodes, rows.unpack()


_ZEROS = 255
"""Source of an all-zero segment; also the maximum number of snapshots."""


class SegmentIndex:
    """Location of every segment of every node of a snapshot: the snapshot that stores it, and the row there.

    Memory: 5 bytes per node and segment. Selecting copies each row once.
    """

    def __init__(self, first: PackedRows) -> None:
        self._bounds, self._dtype, self._width = first.bounds, first.dtype, first.width
        shape = len(first.bounds), first.num_rows
        self._source: npt.NDArray[np.uint8] = np.zeros(shape, np.uint8)
        self._index: npt.NDArray[np.int32] = np.tile(np.arange(first.num_rows, dtype=np.int32), (shape[0], 1))
        self._stored: list[Sequence[Array]] = []
        if isinstance(first.data, SparseSegments):
            self._source[:] = _ZEROS
            self._add(first.data)
        else:
            dense = first.data
            self._stored.append([dense[:, a:b] for a, b in first.bounds])

    def advance(self, diff: KeyDiff, changed: SparseSegments) -> None:
        """Advance to the next snapshot. Missing segments of inserted nodes are 0."""
        source = np.full((len(self._bounds), diff.new.size), _ZEROS, np.uint8)
        index = np.zeros((len(self._bounds), diff.new.size), np.int32)
        source[:, ~diff.new], index[:, ~diff.new] = self._source[:, diff.stay], self._index[:, diff.stay]
        self._source, self._index = source, index
        self._add(changed)

    def select(self, positions: IntArray) -> Array:
        """Select rows by position, in any order."""
        rows: Array = np.zeros((positions.size, self._width), self._dtype)
        for segment, (a, b) in enumerate(self._bounds):
            source, index = self._source[segment, positions], self._index[segment, positions]
            for number, stored in enumerate(self._stored):
                selected = np.flatnonzero(source == number)
                if selected.size == positions.size:
                    rows[:, a:b] = stored[segment][index]
                elif selected.size:
                    rows[selected, a:b] = stored[segment][index[selected]]
        return rows

    def _add(self, segments: SparseSegments) -> None:
        number = len(self._stored)
        assert number < _ZEROS, f"at most {_ZEROS} snapshots can be indexed"
        for segment, mask in enumerate(segments.masks):
            at = mask.indices()
            self._source[segment, at], self._index[segment, at] = number, np.arange(at.size, dtype=np.int32)
        self._stored.append(segments.rows)


def _replay(nodes: IntArray, later: list[_FeatureDelta]) -> tuple[IntArray, list[KeyDiff]]:
    """Nodes after all differences, and the key difference of each."""
    steps = []
    for each in later:
        nodes, diff = merge_keys(nodes, each.deleted, each.inserted)
        steps.append(diff)
    return nodes, steps


def _positions_in_last(steps: list[KeyDiff]) -> list[IntArray | None]:
    """Positions of the nodes of each snapshot in the last one, -1 if deleted in between; None: all, in order."""
    places: list[IntArray | None] = [None]
    for diff in reversed(steps):
        place = places[-1]
        if not diff.is_empty:
            place = diff.map_positions(np.arange(diff.new.size) if place is None else place)
        places.append(place)
    return places[::-1]


def _copy(array: Array) -> Array:
    """Contiguous copy, which keeps no base array alive."""
    return np.array(array, order="C")


def _check_rows(nodes: IntArray, x: Array) -> None:
    if x.ndim != 2 or len(x) != len(nodes):
        raise InputError(f"{len(nodes):,} nodes need {len(nodes):,} feature rows, not an array of shape {x.shape}")
    if (nodes[1:] <= nodes[:-1]).any():
        raise InputError("nodes must be ascending and distinct")


def _scatter_rows(rows: Array, values: Array, place: IntArray | None, begin: int = 0) -> None:
    """Scatter values into rows from column ``begin`` at ``place`` (-1: skip; None: in order)."""
    if place is None:
        rows[:] = values
    else:
        place = read_only(place.astype(np.int64, copy=False))
        _scatter_segments(rows.view(f"u{rows.itemsize}"), bits(values), place, begin)


@cached_njit
def _scatter_segments(rows: Array, values: Array, place: IntArray, begin: int) -> None:
    """Scatter values into rows from column ``begin``; rows with place -1 are skipped."""
    end = begin + values.shape[1]
    for row in range(len(values)):
        if place[row] >= 0:
            target, source = rows[place[row], begin:end], values[row]  # slices, so that the loop vectorizes
            for column in range(len(source)):
                target[column] = source[column]
