"""Random numbers by number of the row, so that an edge can be drawn again instead of being kept.

Row r of a stream is a pure function of (key, r): reading rows in one piece, in many, or again ten snapshots later
gives the same numbers. A generator that keeps row numbers instead of edges therefore needs no memory for edges,
and what it makes does not depend on how it was cut into parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from strobe.ops.csr import FloatArray, IntArray, index_dtype

CHUNK = 1 << 20
"""Edges drawn at once: 32 MiB of random numbers. The result does not depend on it."""

COLUMNS = 4
"""Uniform numbers per row: as many as an edge ever needs."""

_NEAR = 128  # rows: drawing as many takes about as long as going to a row elsewhere in the stream


class Runs(NamedTuple):
    """Stretches of consecutive rows, each drawn for one snapshot."""

    first: IntArray  # [R] rows
    length: IntArray  # [R]
    born: IntArray  # [R] snapshots


class Draws:
    """A stream of rows of uniform numbers in [0, 1), readable from any row on in constant time."""

    def __init__(self, *key: int) -> None:
        self._bits = np.random.PCG64DXSM(np.random.SeedSequence(key))
        self._start = self._bits.state
        self._uniform = np.random.Generator(self._bits)

    def rows(self, first: int, count: int) -> FloatArray:
        """Rows first .. first + count - 1, [count, 4]."""
        self._bits.state = self._start
        self._bits.advance(first * COLUMNS)
        return self._uniform.random((count, COLUMNS))

    def parts(self, runs: Runs) -> Iterator[tuple[FloatArray, IntArray]]:
        """The rows of all runs as (numbers [m, 4], snapshot each row was drawn for [m]), CHUNK rows at a time.

        Runs that lie near each other are drawn at once: a thousand short ones cost about as much as a long one.
        """
        ends = np.cumsum(runs.length)
        begins = ends - runs.length
        total = int(runs.length.sum())
        for start in range(0, total, CHUNK):
            stop = min(start + CHUNK, total)
            part = slice(np.searchsorted(ends, start, "right"), np.searchsorted(ends, stop) + 1)
            skipped = np.maximum(start - begins[part], 0)
            length = np.minimum(ends[part], stop) - begins[part] - skipped
            yield self._joined(runs.first[part] + skipped, length), np.repeat(runs.born[part], length)

    def _joined(self, first: IntArray, length: IntArray) -> FloatArray:
        """The rows of some runs. Those between neighbours are drawn and dropped where that is faster than a leap.

        Memory: the result twice; where rows are dropped, up to 2 * CHUNK rows more.
        """
        stop = first + length
        gap = first[1:] - stop[:-1]
        leaps = np.flatnonzero((gap < 0) | (gap > _NEAR) | (np.diff(first // CHUNK) != 0)) + 1
        pieces = []
        for head, tail in itertools.pairwise([0, *leaps.tolist(), first.size]):
            drawn = self.rows(int(first[head]), int(stop[tail - 1] - first[head]))
            wanted = length[head:tail]
            if wanted.sum() < len(drawn):
                dropped = np.append(gap[head : tail - 1], 0)
                kept = np.repeat(np.tile([True, False], wanted.size), np.stack([wanted, dropped], 1).ravel())
                drawn = drawn[kept]
            pieces.append(drawn)
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def power_law(uniform: FloatArray, size: int | IntArray, exponent: float) -> IntArray:
    """Indices below ``size``, low ones far more often: how often each is drawn has a power-law tail.

    Index i is drawn in proportion to (i + 1) ** -a with a = 1 / (exponent - 1), so that the number of nodes
    drawn d times falls as d ** -exponent. Closed form: no table of nodes is built or searched.
    """
    stretched = uniform ** ((exponent - 1) / (exponent - 2))
    stretched *= size
    return stretched.astype(np.int64)


def distinct(src: IntArray, dst: IntArray, size: int | IntArray) -> IntArray:
    """The destinations, where one that equals its source gives way to the next index below ``size``."""
    return np.where(src == dst, (dst + 1) % size, dst)


def first_ids(num: int) -> IntArray:
    """Nodes 0 .. num - 1, as narrow as they can be."""
    ids: IntArray = np.arange(num, dtype=index_dtype(num))
    return ids
