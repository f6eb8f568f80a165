"""Random numbers by number of the row, so that an edge can be drawn again instead of being kept.

Row r of a stream is a pure function of (key, r): reading rows in one piece, in many, or again ten snapshots later
gives the same numbers. A generator that keeps row numbers instead of edges therefore needs no memory for edges,
and what it makes does not depend on how it was cut into parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from strobe.ops.csr import FloatArray, IntArray, index_dtype

CHUNK = 1 << 20
"""Edges drawn at once: 32 MiB of random numbers. The result does not depend on it."""

COLUMNS = 4
"""Uniform numbers per row: as many as an edge ever needs."""


class Run(NamedTuple):
    """Consecutive rows that were drawn for the same snapshot."""

    first: int
    length: int
    born: int


class Draws:
    """A stream of rows of uniform numbers in [0, 1), readable from any row on in constant time."""

    def __init__(self, *key: int) -> None:
        self._bits = np.random.PCG64DXSM(np.random.SeedSequence(key))
        self._start = self._bits.state

    def rows(self, first: int, count: int) -> FloatArray:
        """Rows first .. first + count - 1, [count, 4]."""
        self._bits.state = self._start
        self._bits.advance(first * COLUMNS)
        return np.random.Generator(self._bits).random((count, COLUMNS))

    def parts(self, runs: Iterable[Run]) -> Iterator[tuple[FloatArray, IntArray]]:
        """The rows of all runs as (numbers [m, 4], snapshot each row was drawn for [m]), CHUNK rows at a time.

        Short runs share a part: ten thousand runs of ten rows cost as much as one of a hundred thousand.
        """
        pieces: list[Run] = []
        room = CHUNK
        for first, length, born in runs:
            while length:
                take = min(length, room)
                pieces.append(Run(first, take, born))
                first, length, room = first + take, length - take, room - take
                if not room:
                    yield self._joined(pieces)
                    pieces, room = [], CHUNK
        if pieces:
            yield self._joined(pieces)

    def _joined(self, pieces: list[Run]) -> tuple[FloatArray, IntArray]:
        numbers = np.concatenate([self.rows(piece.first, piece.length) for piece in pieces])
        return numbers, np.repeat([piece.born for piece in pieces], [piece.length for piece in pieces])


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
