"""Structures that a builder has written: equal ones are found by checksums and compared bit by bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from zlib import crc32

import numpy as np

from strobe.graph.arrays import Array
from strobe.graph.sink import Sink
from strobe.ops.sparse.csr import IntArray

_COMPARED_ROWS = 1 << 22


class Checksums:
    """Checksums of a structure's arrays, while they are written part by part."""

    def __init__(self) -> None:
        self._crc32: dict[str, int] = {}

    def update(self, name: str, rows: Array | None) -> None:
        if rows is not None:
            self._crc32[name] = crc32(np.ascontiguousarray(rows).data, self._crc32.get(name, 0))

    def __contains__(self, name: str) -> bool:
        return name in self._crc32

    def key(self) -> frozenset[tuple[str, int]]:
        return frozenset(self._crc32.items())


@dataclass(eq=False)
class WrittenStructures:
    """Nodes and arcs that are in a sink, one entry per structure. Cost: a few hundred bytes per structure."""

    sink: Sink
    cell_ptr: list[int] = field(default_factory=lambda: [0])
    arc_ptr: list[int] = field(default_factory=lambda: [0])
    _known: dict[object, list[int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.cell_ptr) - 1

    def add(self, present: IntArray | None, size: int, arcs: int, sums: Checksums) -> int:
        """Return the number of the structure whose arcs were written last: a new one, or that of an equal one.

        Args:
            present: its nodes, which are not yet written; None: all.
            size: number of its nodes.
            arcs: number of its arcs.
            sums: checksums of its arrays.
        """
        sums.update("node", present)
        same = self._known.setdefault((size, arcs, sums.key()), [])
        lengths = {"row_ptr": size + 1, "col": arcs, "weight": arcs if "weight" in sums else 0}
        for number in same:  # checksums could be equal by chance
            if self._has_nodes(number, present) and self._equals_last(number, lengths):
                return number
        same.append(len(self))
        self.cell_ptr.append(self.cell_ptr[-1] + size)
        self.arc_ptr.append(self.arc_ptr[-1] + arcs)
        return len(self) - 1

    def _has_nodes(self, number: int, present: IntArray | None) -> bool:
        if present is None:
            return True
        return np.array_equal(self.sink.read("node", *self.cell_ptr[number : number + 2]), present)

    def _equals_last(self, number: int, lengths: dict[str, int]) -> bool:
        """Compare a structure with that at the end of the arrays."""
        before = {"row_ptr": self.cell_ptr[number] + number}
        last = {"row_ptr": self.cell_ptr[-1] + len(self)}
        return all(
            _same_bits(self.sink.read(name, first, first + step), self.sink.read(name, now, now + step))
            for name, length in lengths.items()
            for first, now, step in _pieces(
                before.get(name, self.arc_ptr[number]), last.get(name, self.arc_ptr[-1]), length
            )
        )


def _pieces(first: int, last: int, length: int) -> Iterator[tuple[int, int, int]]:
    """Yield (start in the first span, start in the last span, length) of pieces that fit into memory."""
    for start in range(0, length, _COMPARED_ROWS):
        yield first + start, last + start, min(_COMPARED_ROWS, length - start)


def _same_bits(a: Array, b: Array) -> bool:
    """Return whether two arrays have the same bits: NaN equals itself, and 0 differs from -0."""
    return a.dtype == b.dtype and np.array_equal(a.view(np.uint8), b.view(np.uint8))
