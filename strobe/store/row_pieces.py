"""Some segments of some rows, and rows without the segments that are all zeros."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from strobe.graph.arrays import Array, read_only
from strobe.ops.csr import IntArray
from strobe.store.marks import Marks, Mask
from strobe.store.stretches import Cuts, bits, nonzero_segments, segment_bytes


@dataclass(frozen=True, eq=False)
class Pieces:
    """By segment, which rows have it here, and what it is."""

    marks: tuple[Marks, ...]
    rows: tuple[Array, ...]  # [marked, width of the segment]

    @classmethod
    def of(cls, x: Array, chosen: Mask, cuts: Cuts) -> Pieces:
        """The segments of x that are ``chosen``, [S, n]."""
        rows = tuple(x[:, a:b][each] for each, (a, b) in zip(chosen, cuts, strict=True))
        return cls(tuple(Marks.of(each) for each in chosen), rows)

    def put(self, rows: Array, cuts: Cuts, place: IntArray | None = None) -> None:
        """Puts them where they belong in ``rows``: ``place`` has where each row is, -1 nowhere; None as they are."""
        for (a, _), marks, given in zip(cuts, self.marks, self.rows, strict=True):
            put(rows, given, marks.numbers() if place is None else place[marks.numbers()], a)

    def arrays(self) -> Iterator[Array]:
        """Everything that is allocated."""
        yield from (*(marks.held for marks in self.marks), *self.rows)


@dataclass(frozen=True, eq=False)
class PackedRows:
    """Rows, [n, F], without segments whose bits are all zero; whole, where that takes no more bytes."""

    num_rows: int
    kind: np.dtype[np.generic]
    cuts: Cuts
    held: Array | Pieces

    @classmethod
    def of(cls, x: Array, cuts: Cuts, *, copy: bool = True) -> PackedRows:
        """``copy``: whole rows are copied, for somebody else has them, too."""
        chosen = nonzero_segments(x, cuts)
        left_out = int(segment_bytes(~chosen, cuts, x.itemsize).sum())
        if left_out > len(cuts) * -(-len(x) // 8):  # what marks take at most
            return cls(len(x), x.dtype, cuts, Pieces.of(x, chosen, cuts))
        return cls(len(x), x.dtype, cuts, np.array(x, order="C") if copy else x)

    @property
    def width(self) -> int:
        return self.cuts[-1][1] if self.cuts else 0

    def unpacked(self) -> Array:
        """The rows; those that are held whole are not copied."""
        if isinstance(self.held, np.ndarray):
            return self.held
        rows: Array = np.zeros((self.num_rows, self.width), self.kind)
        self.held.put(rows, self.cuts)
        return rows

    def arrays(self) -> Iterator[Array]:
        """Everything that is allocated."""
        if isinstance(self.held, np.ndarray):
            yield self.held
        else:
            yield from self.held.arrays()


def put(rows: Array, given: Array, place: IntArray | None, begin: int = 0) -> None:
    """Puts rows where they belong, from column ``begin`` on; those with -1 nowhere, None: as they are."""
    from strobe.store.loops import scatter  # numba takes its time to load

    if place is None:
        rows[:] = given
    else:
        scatter(rows.view(f"u{rows.itemsize}"), bits(given), read_only(place.astype(np.int64, copy=False)), begin)
