"""External sort of a snapshot's arcs, and the positions of nodes within a snapshot."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

import numpy as np

from strobe.errors import InputError
from strobe.graph.arrays import Array
from strobe.io.temporary import TemporaryFolder
from strobe.ops.sparse.csr import FloatArray, IntArray, Parallel, coalesce, sort_edges

_SPARSE_FACTOR = 64
"""A snapshot with fewer than N / 64 nodes counts as sparse."""


class NodePositions:
    """Look up positions of nodes among the present nodes of one snapshot after another.

    One table over all nodes is reused for all snapshots: a lookup is fifty times faster than a binary search over
    millions of nodes. A sparse first snapshot is searched, since a table would cost more if it stays the only one.
    """

    def __init__(self, num_nodes: int) -> None:
        self._num_nodes = num_nodes
        self._num_snapshots = 0
        self._table: IntArray | None = None  # -1 where a node is absent, [N]

    @contextmanager
    def lookup(self, present: IntArray | None, size: int, t: int) -> Iterator[Callable[[IntArray], IntArray]]:
        """Return a function from nodes to their positions among ``size`` present nodes (None: all); it refuses absent
        nodes."""
        self._num_snapshots += 1
        if present is None or (size and present[-1] == size - 1):
            yield lambda ids: _check_present(ids, ids, ids >= size, t)
        elif self._num_snapshots == 1 and size * _SPARSE_FACTOR < self._num_nodes:
            yield lambda ids: _search(ids, present, t)
        else:
            if self._table is None:
                self._table = np.full(self._num_nodes, -1, present.dtype)
            table = self._table
            table[present] = np.arange(size, dtype=present.dtype)
            try:
                yield lambda ids: _check_present(ids, at := table[ids], at < 0, t)
            finally:
                table[present] = -1


def _search(ids: IntArray, present: IntArray, t: int) -> IntArray:
    if not present.size:
        return _check_present(ids, ids, np.ones(ids.shape, np.bool_), t)
    at = np.minimum(np.searchsorted(present, ids), present.size - 1)
    return _check_present(ids, at, present[at] != ids, t)


def _check_present(ids: IntArray, at: IntArray, missing: Array, t: int) -> IntArray:
    if bool(missing.any()):
        raise InputError(
            f"snapshot {t}: an edge touches node {int(ids[missing][0])}, which is not among the snapshot's nodes"
        )
    return at


RUN_ARCS = 1 << 24
"""Arcs sorted in memory at once: 128 MiB of keys. More arcs are spilled to disk in sorted runs."""

_SAMPLES_PER_RUN = 1024


@dataclass(eq=False)
class EdgeSorter:
    """Sort and merge the arcs of one snapshot, given in any order, and return them in blocks.

    An undirected edge becomes two arcs (a self-loop one). Memory is bounded by a few runs for any number of arcs, even
    if most of them end in one region of the id space: blocks are cut at quantiles of the arcs, not of the ids.
    """

    num_nodes: int
    _: KW_ONLY
    directed: bool
    self_loops: bool
    parallel: Parallel
    scratch_dir: Path | None = None
    run_arcs: int = RUN_ARCS
    num_arcs: int = field(default=0, init=False)
    _keys: list[IntArray] = field(default_factory=list, init=False)
    _weights: list[FloatArray] = field(default_factory=list, init=False)
    _pending: int = field(default=0, init=False)
    _runs: list[tuple[IntArray, FloatArray | None]] = field(default_factory=list, init=False)
    _scratch: TemporaryFolder | None = field(default=None, init=False)

    def add(self, src: IntArray, dst: IntArray, weight: FloatArray | None) -> None:
        """Add edges by position in the snapshot (not by global id)."""
        if not self.self_loops:
            keep = src != dst
            src, dst = src[keep], dst[keep]
            weight = None if weight is None else weight[keep]
        if self.directed:
            self._append(src, dst, weight)
        else:
            # All arcs low -> high, then all high -> low: equal arcs stay in the order of their edges.
            low, high = np.minimum(src, dst), np.maximum(src, dst)
            turn = low != high
            self._append(low, high, weight)
            self._append(high[turn], low[turn], None if weight is None else weight[turn])
        if self._pending >= self.run_arcs:
            self._spill()

    def blocks(self) -> Iterator[tuple[IntArray, FloatArray | None]]:
        """Yield merged keys and weights in ascending order; blocks never split a row (destination)."""
        if not self._runs:
            yield self._coalesce(*self._take_pending())
            return
        if self._pending:
            self._spill()
        try:
            for low, high in self._key_ranges():
                yield self._coalesce(*self._read_range(low, high))
        finally:
            self.close()

    def close(self) -> None:
        """Remove the runs from disk."""
        self._runs.clear()
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None

    def _append(self, src: IntArray, dst: IntArray, weight: FloatArray | None) -> None:
        key = dst.astype(np.int64) * self.num_nodes
        key += src
        self._keys.append(key)
        if weight is not None:
            self._weights.append(weight)
        self._pending += key.size
        self.num_arcs += key.size

    def _coalesce(self, key: IntArray, weight: FloatArray | None) -> tuple[IntArray, FloatArray | None]:
        with np.errstate(over="ignore"):  # the caller refuses infinite sums
            return coalesce(*sort_edges(key, weight), self.parallel)

    def _take_pending(self) -> tuple[IntArray, FloatArray | None]:
        key = np.concatenate(self._keys) if self._keys else np.empty(0, np.int64)
        weight = np.concatenate(self._weights) if self._weights else None
        self._keys.clear()
        self._weights.clear()
        self._pending = 0
        return key, weight

    def _spill(self) -> None:
        if self._scratch is None:
            self._scratch = TemporaryFolder("sort", self.scratch_dir)
        stem = self._scratch.path / str(len(self._runs))
        key, weight = sort_edges(*self._take_pending())
        self._runs.append(
            (
                _move_to_disk(key, stem.with_suffix(".key")),
                None if weight is None else _move_to_disk(weight, stem.with_suffix(".weight")),
            )
        )

    def _key_ranges(self) -> Iterator[tuple[int, int]]:
        """Yield key ranges of about half a run each, cut where a destination begins."""
        total = sum(key.size for key, _ in self._runs)
        samples = [key[np.linspace(0, key.size - 1, _SAMPLES_PER_RUN, dtype=np.int64)] for key, _ in self._runs]
        sample = np.sort(np.concatenate(samples))
        num_ranges = max(1, -(-2 * total // self.run_arcs))
        cuts = sample[np.linspace(0, sample.size - 1, num_ranges + 1, dtype=np.int64)[1:-1]]
        row_starts = sorted({int(cut) // self.num_nodes * self.num_nodes for cut in cuts} - {0})
        yield from itertools.pairwise([0, *row_starts, self.num_nodes**2])

    def _read_range(self, low: int, high: int) -> tuple[IntArray, FloatArray | None]:
        keys: list[IntArray] = []
        weights: list[FloatArray] = []
        for key, weight in self._runs:
            start, stop = np.searchsorted(key, (low, high))
            keys.append(key[start:stop])
            if weight is not None:
                weights.append(weight[start:stop])
        return np.concatenate(keys), np.concatenate(weights) if weights else None


def _move_to_disk(array: Array, path: Path) -> Array:
    """Write an array to a file and map it. Unlike np.save, raises if the disk is full."""
    with path.open("wb") as file:
        file.write(array.data)
    return np.asarray(np.memmap(path, array.dtype, mode="r"))
