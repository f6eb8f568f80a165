"""Where nodes stand among those of a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from strobe.errors import InputError
from strobe.graph.arrays import Array
from strobe.ops.csr import IntArray

_FEW = 64
"""A snapshot has few nodes where it has less than one in so many."""


class Positions:
    """Finds the nodes of one snapshot after the other among those present in it.

    One table of all nodes serves all snapshots, wiped after each: searching millions of nodes for every end of an edge
    takes fifty times as long as looking it up. A first snapshot of few nodes is searched: should it stay the only
    one, a table would cost more than it does.
    """

    def __init__(self, num_nodes: int) -> None:
        self._num_nodes = num_nodes
        self._num_snapshots = 0
        self._table: IntArray | None = None  # -1 where a node is absent, [N]

    @contextmanager
    def among(self, present: IntArray | None, size: int, t: int) -> Iterator[Callable[[IntArray], IntArray]]:
        """A function from nodes to their positions among the ``size`` present ones (None: all); an absent node is
        refused."""
        self._num_snapshots += 1
        if present is None or (size and present[-1] == size - 1):
            yield lambda ids: _checked(ids, ids, ids >= size, t)
        elif self._num_snapshots == 1 and size * _FEW < self._num_nodes:
            yield lambda ids: _searched(ids, present, t)
        else:
            if self._table is None:
                self._table = np.full(self._num_nodes, -1, present.dtype)
            table = self._table
            table[present] = np.arange(size, dtype=present.dtype)
            try:
                yield lambda ids: _checked(ids, at := table[ids], at < 0, t)
            finally:
                table[present] = -1


def _searched(ids: IntArray, present: IntArray, t: int) -> IntArray:
    if not present.size:
        return _checked(ids, ids, np.ones(ids.shape, np.bool_), t)
    at = np.minimum(np.searchsorted(present, ids), present.size - 1)
    return _checked(ids, at, present[at] != ids, t)


def _checked(ids: IntArray, at: IntArray, missing: Array, t: int) -> IntArray:
    if bool(missing.any()):
        raise InputError(
            f"snapshot {t}: an edge touches node {int(ids[missing][0])}, which is not among the snapshot's nodes"
        )
    return at
