"""Full batches whose structure stage runs over fused chunks that fit into memory."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from strobe.batching.base import Batching, BatchSpec, ChunkableWindow, split_times
from strobe.comm.ledger import Ledger
from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.io.lazy_import import lazy_import
from strobe.ops.sparse.csr import IntArray
from strobe.strategy import Need

if TYPE_CHECKING:
    import scipy.sparse as sp
else:
    sp = lazy_import("scipy.sparse")


@dataclass(frozen=True, kw_only=True)
class Fused(Batching):
    """A step over all training snapshots (or every ``size`` of them) whose convolutions run over fused chunks of at
    most ``memory`` MiB.

    A fused chunk loads each row that it reads once, and stores only its result: the backward pass recomputes it.
    Chunks that share rows are fused first. The memory of a convolution is measured on a few chunks and fitted for the
    others, so a fused chunk may need somewhat more. Exact, except for the order in which weight gradients are summed.
    """

    name: ClassVar[str] = "fused"
    needs: ClassVar[tuple[Need, ...]] = (Need("chunks", "it fuses chunks", "placement chunks, or batching full"),)
    needs_partition: ClassVar[bool] = True
    memory: float = 1024.0
    size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.memory >= 0:
            raise OptionError(f"memory of fused chunks must be 0 MiB (no fusion) or more, not {self.memory}")
        if self.size is not None and self.size < 1:
            raise OptionError(f"a window has at least 1 snapshot, not {self.size}")

    @property
    def window(self) -> int | None:
        return self.size

    def structure_stage(self, data: ChunkableWindow, cell_chunk: Callable[[], IntArray], ledger: Ledger) -> None:
        data.run_in_chunks(cell_chunk(), self.memory * 2**20, ledger)

    def with_window(self, size: int) -> Batching:
        return replace(self, size=size)

    def batches(self, graph: DynamicGraph, times: range, *, hops: int, seed: int = 0) -> list[BatchSpec]:
        del graph, hops, seed
        return [BatchSpec(window, window) for window in split_times(times, self.size)]


MAX_READERS = 256
"""Rows that more chunks load are ignored when chunks are fused by shared rows."""


@dataclass(frozen=True)
class ChunkExtent:
    """Size of a fused chunk: rows it computes (``own``), rows it loads for them, arcs between them."""

    own: int
    loaded: int
    arcs: int

    def merge(self, other: ChunkExtent, shared: int) -> ChunkExtent:
        """The size of both chunks fused, if they load ``shared`` rows in common."""
        return ChunkExtent(self.own + other.own, self.loaded + other.loaded - shared, self.arcs + other.arcs)


MemoryModel = Callable[[ChunkExtent], float]
"""Bytes that computing a fused chunk needs."""


def fuse_chunks(rows: sp.csr_array, own: IntArray, arcs: IntArray, memory: MemoryModel, budget: float) -> IntArray:
    """Fuse chunks greedily: the two that share most rows first, within the budget, then chunks that share none.

    Args:
        rows: the rows that every chunk loads, [K, R].
        own: rows that every chunk computes, [K].
        arcs: arcs of every chunk, [K].
        memory: bytes that a fused chunk needs.
        budget: bytes that a fused chunk may need; a larger chunk stays alone.

    Returns:
        The fused chunk of every chunk, [K], numbered in order of their first chunks.
    """
    fused = _FusedChunks(rows, own, arcs)
    fused.merge_overlapping(memory, budget)
    fused.merge_remaining(memory, budget)
    return fused.chunk_numbers()


class _FusedChunks:
    def __init__(self, rows: sp.csr_array, own: IntArray, arcs: IntArray) -> None:
        loaded = np.diff(rows.indptr)
        self.extent = {k: ChunkExtent(*map(int, each)) for k, each in enumerate(zip(own, loaded, arcs, strict=True))}
        self.chunks: dict[int, list[int]] = {k: [k] for k in self.extent}
        self._near = _count_shared_rows(rows)  # shared rows by fused chunk, summed over pairs of chunks
        self._surely = [dict(near) for near in self._near]  # a lower bound: shared rows of one pair of chunks
        self._next = len(self.chunks)

    def merge_overlapping(self, memory: MemoryModel, budget: float) -> None:
        waiting = [(-shared, a, b) for a, near in enumerate(self._near) for b, shared in near.items() if a < b]
        heapq.heapify(waiting)
        while waiting:
            shared, a, b = heapq.heappop(waiting)
            if a not in self.chunks or b not in self.chunks or self._near[a].get(b) != -shared:
                continue
            both = self.extent[a].merge(self.extent[b], self._surely[a][b])
            if memory(both) > budget:
                continue
            new = self._merge(a, b, both)
            for other, common in self._near[new].items():
                heapq.heappush(waiting, (-common, min(new, other), max(new, other)))

    def merge_remaining(self, memory: MemoryModel, budget: float) -> None:
        """Fuse chunks in order of their first chunks, each into the previous one if it fits."""
        into: int | None = None
        for chunk in sorted(self.chunks, key=lambda each: min(self.chunks[each])):
            if into is not None:
                both = self.extent[into].merge(self.extent[chunk], 0)
                if memory(both) <= budget:
                    into = self._merge(into, chunk, both)
                    continue
            into = chunk

    def chunk_numbers(self) -> IntArray:
        numbers = np.zeros(sum(map(len, self.chunks.values())), np.int64)
        for number, chunks in enumerate(sorted(self.chunks.values(), key=min)):
            numbers[chunks] = number
        return numbers

    def _merge(self, a: int, b: int, both: ChunkExtent) -> int:
        new, self._next = self._next, self._next + 1
        self.chunks[new] = self.chunks.pop(a) + self.chunks.pop(b)
        self.extent[new] = both
        near, surely = self._near[a], self._surely[a]
        for other, shared in self._near[b].items():
            near[other] = near.get(other, 0) + shared
            surely[other] = max(surely.get(other, 0), self._surely[b][other])
        self._near.append({other: shared for other, shared in near.items() if other in self.chunks})
        self._surely.append({other: surely[other] for other in self._near[new]})
        for other in self._near[new]:
            self._near[other][new], self._surely[other][new] = self._near[new][other], self._surely[new][other]
        return new


def _count_shared_rows(rows: sp.csr_array) -> list[dict[int, int]]:
    """For every chunk the number of rows that it shares with each other chunk."""
    readers = np.bincount(rows.indices, minlength=rows.shape[1])
    few = sp.csr_array(rows)
    few.data = (readers[few.indices] <= MAX_READERS).astype(np.int64)
    few.eliminate_zeros()
    common = (few @ few.T).tocsr()
    counts = []
    for k in range(rows.shape[0]):
        row = slice(common.indptr[k], common.indptr[k + 1])
        pairs = zip(common.indices[row].tolist(), common.data[row].tolist(), strict=True)
        counts.append({other: shared for other, shared in pairs if other != k})
    return counts
