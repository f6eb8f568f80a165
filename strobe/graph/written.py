"""Structures that a builder has written: equal ones are found by checksums and compared bit by bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple
from zlib import crc32

import numpy as np

from strobe.graph.arrays import Array
from strobe.graph.sink import Sink
from strobe.ops.sparse.csr import IntArray

_READ_ROWS = 1 << 22


class _Span(NamedTuple):
    """Rows of one array of a structure."""

    name: str
    start: int
    length: int

    def pieces(self) -> Iterator[tuple[int, int]]:
        """Yield (start, stop) of pieces that fit into memory."""
        stop = self.start + self.length
        for start in range(self.start, stop, _READ_ROWS):
            yield start, min(start + _READ_ROWS, stop)


@dataclass(eq=False)
class WrittenStructures:
    """Nodes and arcs that are in a sink, one entry per structure.

    Arrays are read again only of structures with the same in-degrees as a later one. Cost: a few hundred bytes per
    structure.
    """

    sink: Sink
    cell_ptr: list[int] = field(default_factory=lambda: [0])
    arc_ptr: list[int] = field(default_factory=lambda: [0])
    _known: dict[object, dict[int | None, list[int]]] = field(default_factory=dict)
    _summed: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.cell_ptr) - 1

    def add(self, row_ptr: IntArray, names: Sequence[str]) -> int:
        """Return the number of the structure that was written last: a new one, or that of an equal one before.

        Args:
            row_ptr: its row pointers.
            names: its other arrays: col, and node and weight if the graph has them.
        """
        number, size, arcs = len(self), row_ptr.size - 1, int(row_ptr[-1])
        self.cell_ptr.append(self.cell_ptr[-1] + size)
        self.arc_ptr.append(self.arc_ptr[-1] + arcs)
        found = self._find_equal(number, (size, arcs, crc32(row_ptr.data)), names)
        if found is None:
            return number
        self.cell_ptr.pop()
        self.arc_ptr.pop()
        return found

    def _find_equal(self, number: int, key: object, names: Sequence[str]) -> int | None:
        if self._summed != names:  # an array was added, also for earlier structures: their checksums have changed
            self._summed = names
            self._known = {
                key: {None: list(chain.from_iterable(by_sum.values()))} for key, by_sum in self._known.items()
            }
        by_sum = self._known.setdefault(key, {})
        if not by_sum:
            by_sum[None] = [number]  # the first of its in-degrees: its checksum may never be needed
            return None
        for earlier in by_sum.pop(None, []):
            by_sum.setdefault(self._checksum(earlier, names), []).append(earlier)
        same = by_sum.setdefault(self._checksum(number, names), [])
        for other in same:  # checksums could be equal by chance
            if self._are_equal(other, number, names):
                return other
        same.append(number)
        return None

    def _spans(self, number: int, names: Sequence[str]) -> Iterator[_Span]:
        cells, arcs = (ptr[number : number + 2] for ptr in (self.cell_ptr, self.arc_ptr))
        yield _Span("row_ptr", cells[0] + number, cells[1] - cells[0] + 1)
        for name in names:
            first, end = cells if name == "node" else arcs
            yield _Span(name, first, end - first)

    def _checksum(self, number: int, names: Sequence[str]) -> int:
        found = 0
        for span in self._spans(number, names):
            for start, stop in span.pieces():
                found = crc32(np.ascontiguousarray(self.sink.read(span.name, start, stop)).data, found)
        return found

    def _are_equal(self, first: int, second: int, names: Sequence[str]) -> bool:
        return all(
            _same_bits(self.sink.read(a.name, *rows), self.sink.read(b.name, *others))
            for a, b in zip(self._spans(first, names), self._spans(second, names), strict=True)
            for rows, others in zip(a.pieces(), b.pieces(), strict=True)
        )


def _same_bits(a: Array, b: Array) -> bool:
    """Return whether two arrays have the same bits: NaN equals itself, and 0 differs from -0."""
    return a.dtype == b.dtype and np.array_equal(a.view(np.uint8), b.view(np.uint8))
