"""Segments of feature rows: bounds, changes, sparse storage and an index of where each is stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from strobe.graph.arrays import Array, read_only
from strobe.ops.sparse.csr import IntArray
from strobe.store.delta.codecs import CompactMask, Mask
from strobe.store.delta.diff import KeyDiff
from strobe.store.delta.kernels import mark_changed_segments, scatter_segments

SegmentBounds = list[tuple[int, int]]
"""(begin, end) of each segment of a row."""


def segment_bounds(width: int, segments: int) -> SegmentBounds:
    """Even, non-empty segments of a row."""
    segments = min(segments, width)
    return list(pairwise(segment * width // segments for segment in range(segments + 1))) if segments else []


def changed_segments(diff: KeyDiff, before: Array, x: Array, bounds: SegmentBounds) -> Mask:
    """Segments whose bits changed, [S, n]; new nodes are compared with zeros."""
    changed = np.zeros((len(bounds), len(x)), np.bool_)
    ends = np.array([b for _, b in bounds], np.int64)
    mark_changed_segments(bits(before), bits(x), diff.stay, diff.new, ends, changed)
    return changed


def nonzero_segments(x: Array, bounds: SegmentBounds) -> Mask:
    """Segments that are not all zero, bitwise, [S, n]."""
    return changed_segments(KeyDiff.all_new(len(x)), x[:0], x, bounds)


def segment_bytes(chosen: Mask, bounds: SegmentBounds, itemsize: int) -> IntArray:
    """Bytes of the chosen segments of each row, [n]."""
    widths = np.array([b - a for a, b in bounds], np.int64)
    return np.asarray(widths @ chosen.astype(np.int64) * itemsize)


def bits(rows: Array) -> Array:
    """Rows as read-only unsigned integers: NaN equals itself, and 0 differs from -0."""
    return read_only(np.ascontiguousarray(rows).view(f"u{rows.itemsize}"))


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
            scatter_rows(rows, values, mask.indices() if place is None else place[mask.indices()], a)

    def arrays(self) -> Iterator[Array]:
        yield from (*(mask.data for mask in self.masks), *self.rows)


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
        chosen = nonzero_segments(x, bounds)
        saved = int(segment_bytes(~chosen, bounds, x.itemsize).sum())
        if saved > len(bounds) * -(-len(x) // 8):  # maximum size of the masks
            return cls(len(x), x.dtype, bounds, SparseSegments.of(x, chosen, bounds))
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

    def arrays(self) -> Iterator[Array]:
        if isinstance(self.data, np.ndarray):
            yield self.data
        else:
            yield from self.data.arrays()


def scatter_rows(rows: Array, values: Array, place: IntArray | None, begin: int = 0) -> None:
    """Scatter values into rows from column ``begin`` at ``place`` (-1: skip; None: in order)."""
    if place is None:
        rows[:] = values
    else:
        place = read_only(place.astype(np.int64, copy=False))
        scatter_segments(rows.view(f"u{rows.itemsize}"), bits(values), place, begin)


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
