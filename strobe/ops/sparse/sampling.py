"""Multi-hop neighbor sampling: at most ``fanouts[k]`` incoming arcs per cell at hop k."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from strobe.ops.sparse.csr import FloatArray, IntArray, readonly_view
from strobe.ops.sparse.sampling_kernels import clear, mark, sample_hop

ALL_NEIGHBORS = -1
"""Fanout without a limit."""

_ALL_BITS = (1 << 64) - 1
_HOP_STEP = 0xD1B54A32D192ED03  # added to the key per hop

_thread_local = threading.local()


@dataclass(frozen=True, eq=False)
class SampledArcs:
    """Sampled arcs of the first cells of a sample, by rows, in the order of the snapshot."""

    row_ptr: IntArray  # [r + 1]
    col: IntArray  # [a] into the cells of the sample
    arc: IntArray  # [a] index among the arcs of the snapshot
    degree: IntArray  # [r] in-degree of each cell in the snapshot

    @cached_property
    def reader(self) -> IntArray:
        """Reading cell of each arc."""
        return np.repeat(np.arange(len(self.degree)), np.diff(self.row_ptr))

    @cached_property
    def scale(self) -> FloatArray | None:
        """Degree over sampled arcs, per arc; None if all arcs were sampled."""
        count = np.diff(self.row_ptr)
        if np.array_equal(count, self.degree):
            return None
        scale: FloatArray = (self.degree[self.reader] / count[self.reader]).astype(np.float64)
        return scale


@dataclass(frozen=True, eq=False)
class Sample:
    """Sampled cells of a snapshot, targets first: ``hops[j]`` are arcs of the first ``sizes[j]`` cells and lead to the
    first ``sizes[j + 1]``."""

    position: IntArray  # [c] position of each cell in its snapshot
    sizes: tuple[int, ...]
    hops: tuple[SampledArcs, ...]

    @property
    def num_arcs(self) -> int:
        return sum(len(arcs.arc) for arcs in self.hops)


def sample_neighbors(
    row_ptr: IntArray, col: IntArray, nodes: IntArray, targets: IntArray, fanouts: Sequence[int], key: int
) -> Sample:
    """Sample at most ``fanouts[k]`` incoming arcs, uniformly without replacement, of every cell reached before hop k.

    The arcs of a node depend on ``key``, node id, degree and hop alone, so all ranks sample the same arcs.

    Args:
        row_ptr: row pointers of the snapshot.
        col: positions of the sources.
        nodes: node ids of the cells.
        targets: distinct positions.
        fanouts: from the nearest hop; ``ALL_NEIGHBORS`` for no limit.
        key: 64 random bits.
    """

    place = _take_scratch(len(row_ptr) - 1)
    snapshot = readonly_view(row_ptr), readonly_view(col), readonly_view(nodes)
    cells: IntArray = targets.astype(np.int32)
    mark(cells, place)
    sizes, hops = [len(cells)], []
    for hop, fanout in enumerate(fanouts):
        cells, *arrays = sample_hop(snapshot, cells, fanout, np.uint64((key + hop * _HOP_STEP) & _ALL_BITS), place)
        sizes.append(len(cells))
        hops.append(SampledArcs(*arrays))
    clear(cells, place)
    _thread_local.scratch = place
    return Sample(cells, tuple(sizes), tuple(hops))


def _take_scratch(num_cells: int) -> Any:
    """Take this thread's array of -1. The caller resets and returns it; after an error it is discarded."""
    scratch = getattr(_thread_local, "scratch", None)
    _thread_local.scratch = None
    return np.full(num_cells, -1, np.int32) if scratch is None or len(scratch) < num_cells else scratch
