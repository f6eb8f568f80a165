"""Random numbers addressed by row, so that an edge can be drawn again instead of being stored.

Row r of a stream is a pure function of (key, r), whether rows are read at once, in blocks, or again ten snapshots
later. A generator that stores row numbers needs no memory for edges, and its result does not depend on blocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from strobe.ops.sparse.csr import FloatArray, IntArray, index_dtype

CHUNK = 1 << 20
"""Edges drawn at once: 32 MiB of random numbers. The result does not depend on it."""

COLUMNS = 4
"""Uniform numbers per row: as many as an edge ever needs."""

_MAX_SKIPPED_ROWS = 128  # rows: drawing them takes about as long as seeking elsewhere in the stream


class RowRuns(NamedTuple):
    """Runs of consecutive rows, each drawn for one snapshot."""

    first: IntArray  # [R] rows
    length: IntArray  # [R]
    born: IntArray  # [R] snapshots


class RandomRows:
    """A stream of rows of uniform numbers in [0, 1) with constant-time seek."""

    def __init__(self, *key: int) -> None:
        self._bits = np.random.PCG64DXSM(np.random.SeedSequence(key))
        self._start = self._bits.state
        self._uniform = np.random.Generator(self._bits)

    def rows(self, first: int, count: int) -> FloatArray:
        """Return rows first .. first + count - 1, [count, 4]."""
        self._bits.state = self._start
        self._bits.advance(first * COLUMNS)
        return self._uniform.random((count, COLUMNS))

    def parts(self, runs: RowRuns) -> Iterator[tuple[FloatArray, IntArray]]:
        """Yield the rows of all runs as (numbers [m, 4], snapshot of each row [m]), CHUNK rows at a time.

        Nearby runs are drawn together: a thousand short ones cost about as much as a long one.
        """
        ends = np.cumsum(runs.length)
        begins = ends - runs.length
        total = int(runs.length.sum())
        for start in range(0, total, CHUNK):
            stop = min(start + CHUNK, total)
            part = slice(np.searchsorted(ends, start, "right"), np.searchsorted(ends, stop) + 1)
            skipped = np.maximum(start - begins[part], 0)
            length = np.minimum(ends[part], stop) - begins[part] - skipped
            yield self._concatenate_runs(runs.first[part] + skipped, length), np.repeat(runs.born[part], length)

    def _concatenate_runs(self, first: IntArray, length: IntArray) -> FloatArray:
        """Return the rows of some runs. Rows between adjacent runs are drawn and dropped if that is faster than
        seeking.

        Memory: the result twice; if rows are dropped, up to 2 * CHUNK rows more.
        """
        stop = first + length
        gap = first[1:] - stop[:-1]
        leaps = np.flatnonzero((gap < 0) | (gap > _MAX_SKIPPED_ROWS) | (np.diff(first // CHUNK) != 0)) + 1
        pieces = []
        for head, tail in itertools.pairwise([0, *leaps.tolist(), first.size]):
            numbers = self.rows(int(first[head]), int(stop[tail - 1] - first[head]))
            wanted = length[head:tail]
            if wanted.sum() < len(numbers):
                dropped = np.append(gap[head : tail - 1], 0)
                mask = np.repeat(np.tile([True, False], wanted.size), np.stack([wanted, dropped], 1).ravel())
                numbers = numbers[mask]
            pieces.append(numbers)
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def power_law_indices(uniform: FloatArray, size: int | IntArray, exponent: float) -> IntArray:
    """Draw indices below ``size`` with a power-law tail, low indices far more often.

    Index i is drawn in proportion to (i + 1) ** -a with a = 1 / (exponent - 1), so that the number of nodes drawn d
    times falls as d ** -exponent. Closed form: no table of nodes is built or searched.
    """
    stretched = uniform ** ((exponent - 1) / (exponent - 2))
    stretched *= size
    return stretched.astype(np.int64)


def avoid_self_loops(src: IntArray, dst: IntArray, size: int | IntArray) -> IntArray:
    """Return the destinations; one that equals its source becomes the next index below ``size``."""
    return np.where(src == dst, (dst + 1) % size, dst)


def node_range(num: int) -> IntArray:
    """Return nodes 0 .. num - 1 in the narrowest dtype."""
    ids: IntArray = np.arange(num, dtype=index_dtype(num))
    return ids


class EvolvingEdges:
    """Living edges as runs of row numbers: a few numbers per snapshot of birth, however many edges.

    Edges born in one snapshot are alike, so the last rows of their run are those that end. ``seed`` and the calls of
    ``step`` determine everything.
    """

    def __init__(self, seed: int) -> None:
        self._draws = RandomRows(seed, 1)
        self._ends = np.random.default_rng([seed, 2])
        self._runs = RowRuns(*np.empty((3, 0), np.int64))
        self._next_row = 0
        self._t = 0

    def step(self, count: int, churn: float) -> None:
        """Advance to the next snapshot, which has exactly ``count`` edges.

        Each edge ends with probability ``churn``; if more would stay than fit, the oldest end as well. New edges make
        up the rest.
        """
        first, length, born = self._runs
        survivors = self._ends.binomial(length, 1 - churn)
        newer = np.cumsum(survivors[::-1])[::-1] - survivors  # edges that are younger than this run's
        survivors = np.minimum(survivors, np.maximum(count - newer, 0))
        new = count - int(survivors.sum())
        runs = RowRuns(np.append(first, self._next_row), np.append(survivors, new), np.append(born, self._t))
        alive = runs.length > 0
        self._runs = RowRuns(*(column[alive] for column in runs))
        self._next_row, self._t = self._next_row + new, self._t + 1

    def parts(self) -> Iterator[tuple[FloatArray, IntArray]]:
        """Yield the numbers of every living edge and its snapshot of birth, in blocks."""
        return self._draws.parts(self._runs)
