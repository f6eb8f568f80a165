"""Sorts the edges of one snapshot by (destination, source), in memory or through sorted runs on disk."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from strobe.graph.arrays import Array
from strobe.io.temporary import TemporaryFolder
from strobe.ops.csr import FloatArray, IntArray, Parallel, merge_parallel, sort_edges

RUN_ARCS = 1 << 24
"""Arcs sorted at once: 128 MiB of keys. More than that goes to disk in sorted runs."""

_SAMPLES_PER_RUN = 1024


class EdgeSorter:
    """Takes arcs of one snapshot in any order, gives them back sorted and merged in blocks.

    An undirected edge becomes two arcs (a self-loop one). Memory is bounded by a few runs however many
    arcs there are, also when most of them end in one region of the id space: blocks are cut at quantiles
    of the arcs, not of the ids.
    """

    def __init__(
        self,
        num_nodes: int,
        *,
        directed: bool,
        self_loops: bool,
        parallel: Parallel,
        scratch_dir: Path | None = None,
        run_arcs: int = RUN_ARCS,
    ) -> None:
        self._n = num_nodes
        self._directed = directed
        self._self_loops = self_loops
        self._parallel: Parallel = parallel
        self._scratch_dir = scratch_dir
        self._run_arcs = run_arcs
        self._keys: list[IntArray] = []
        self._weights: list[FloatArray] = []
        self._pending = 0
        self.num_arcs = 0
        self._runs: list[tuple[IntArray, FloatArray | None]] = []
        self._scratch: TemporaryFolder | None = None

    def add(self, src: IntArray, dst: IntArray, weight: FloatArray | None) -> None:
        """Adds edges by position in the snapshot (not by global id)."""
        if not self._self_loops:
            keep = src != dst
            src, dst = src[keep], dst[keep]
            weight = None if weight is None else weight[keep]
        if self._directed:
            self._append(src, dst, weight)
        else:
            # All arcs low -> high, then all high -> low: equal arcs stay in the order of their edges.
            low, high = np.minimum(src, dst), np.maximum(src, dst)
            turn = low != high
            self._append(low, high, weight)
            self._append(high[turn], low[turn], None if weight is None else weight[turn])
        if self._pending >= self._run_arcs:
            self._spill()

    def blocks(self) -> Iterator[tuple[IntArray, FloatArray | None]]:
        """Sorted, merged keys and weights, ascending; no row (destination) is split between blocks."""
        if not self._runs:
            yield merge_parallel(*self._sorted_pending(), self._parallel)
            return
        if self._pending:
            self._spill()
        try:
            for low, high in self._ranges():
                key, weight = self._range(low, high)
                yield merge_parallel(*sort_edges(key, weight), self._parallel)
        finally:
            self.close()

    def close(self) -> None:
        """Removes the runs from disk."""
        self._runs.clear()
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None

    def _append(self, src: IntArray, dst: IntArray, weight: FloatArray | None) -> None:
        key = dst.astype(np.int64) * self._n
        key += src
        self._keys.append(key)
        if weight is not None:
            self._weights.append(weight)
        self._pending += key.size
        self.num_arcs += key.size

    def _sorted_pending(self) -> tuple[IntArray, FloatArray | None]:
        key = np.concatenate(self._keys) if self._keys else np.empty(0, np.int64)
        weight = np.concatenate(self._weights) if self._weights else None
        self._keys.clear()
        self._weights.clear()
        self._pending = 0
        return sort_edges(key, weight)

    def _spill(self) -> None:
        if self._scratch is None:
            self._scratch = TemporaryFolder("sort", self._scratch_dir)
        stem = self._scratch.path / str(len(self._runs))
        key, weight = self._sorted_pending()
        self._runs.append(
            (
                _moved_to_disk(key, stem.with_suffix(".key")),
                None if weight is None else _moved_to_disk(weight, stem.with_suffix(".weight")),
            )
        )

    def _ranges(self) -> Iterator[tuple[int, int]]:
        """Key ranges of about half a run each, cut where a destination begins."""
        total = sum(key.size for key, _ in self._runs)
        samples = np.sort(
            np.concatenate(
                [key[np.linspace(0, key.size - 1, _SAMPLES_PER_RUN, dtype=np.int64)] for key, _ in self._runs]
            )
        )
        num_ranges = max(1, -(-2 * total // self._run_arcs))
        cuts = samples[np.linspace(0, samples.size - 1, num_ranges + 1, dtype=np.int64)[1:-1]]
        edges = [0, *sorted({int(cut) // self._n * self._n for cut in cuts} - {0}), self._n * self._n]
        yield from itertools.pairwise(edges)

    def _range(self, low: int, high: int) -> tuple[IntArray, FloatArray | None]:
        keys: list[IntArray] = []
        weights: list[FloatArray] = []
        for key, weight in self._runs:
            start, stop = np.searchsorted(key, (low, high))
            keys.append(key[start:stop])
            if weight is not None:
                weights.append(weight[start:stop])
        return np.concatenate(keys), np.concatenate(weights) if weights else None


def _moved_to_disk(array: Array, path: Path) -> Array:
    """The same array over a file; np.save would do, but hides from its caller that a disk is full."""
    with path.open("wb") as file:
        file.write(array.data)
    return np.asarray(np.memmap(path, array.dtype, mode="r"))
