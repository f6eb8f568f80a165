"""Edges that are born, last and end: which rows of a stream of draws are alive in a snapshot."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from strobe.graph.synthetic.draws import Draws, Runs
from strobe.ops.csr import FloatArray, IntArray


class Ties:
    """The edges alive now, as runs of row numbers; a few numbers per snapshot of birth, however many edges.

    Edges born in one snapshot are drawn alike, so which of them end is settled by how many do: the last rows of
    their run. ``seed`` and the calls of ``step`` determine everything.
    """

    def __init__(self, seed: int) -> None:
        self._draws = Draws(seed, 1)
        self._ends = np.random.default_rng([seed, 2])
        self._runs = Runs(*np.empty((3, 0), np.int64))
        self._next_row = 0
        self._t = 0

    def step(self, count: int, churn: float) -> None:
        """Goes to the next snapshot, which has exactly ``count`` edges.

        Each edge ends with probability ``churn``; where more would stay than fit, the oldest end as well. New
        ones make up the rest.
        """
        first, length, born = self._runs
        kept = self._ends.binomial(length, 1 - churn)
        newer = np.cumsum(kept[::-1])[::-1] - kept  # edges that are younger than this run's
        kept = np.minimum(kept, np.maximum(count - newer, 0))
        new = count - int(kept.sum())
        runs = Runs(np.append(first, self._next_row), np.append(kept, new), np.append(born, self._t))
        alive = runs.length > 0
        self._runs = Runs(*(column[alive] for column in runs))
        self._next_row, self._t = self._next_row + new, self._t + 1

    def parts(self) -> Iterator[tuple[FloatArray, IntArray]]:
        """The numbers of every living edge and its snapshot of birth, in parts."""
        return self._draws.parts(self._runs)
