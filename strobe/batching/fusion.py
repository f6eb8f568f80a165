"""Which chunks of a rank are computed together: those that load the same rows, as many as memory allows."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from strobe.ops.csr import IntArray

HUB = 256
"""Rows that more chunks load than this say nothing about which of them belong together."""


@dataclass(frozen=True)
class Extent:
    """How large a piece is: the rows it computes, the rows it loads for them, the arcs between them."""

    own: int
    loaded: int
    arcs: int

    def joined(self, other: Extent, shared: int) -> Extent:
        """Both together, where they load so many rows in common."""
        return Extent(self.own + other.own, self.loaded + other.loaded - shared, self.arcs + other.arcs)


Memory = Callable[[Extent], float]
"""The bytes that computing a piece takes."""


def fuse(rows: sp.csr_array, own: IntArray, arcs: IntArray, memory: Memory, budget: float) -> IntArray:
    """The piece of every chunk, [K], numbered in order of their first chunks.

    ``rows`` says which rows every chunk loads, [K, R]: its ``own`` and those they read.

    The two pieces that load most rows in common become one, as long as it fits into the budget; then pieces that share
    nothing fill up what is left. A chunk that alone does not fit stays alone.
    """
    found = _Pieces(rows, own, arcs)
    found.join_sharing(memory, budget)
    found.fill(memory, budget)
    return found.numbered()


class _Pieces:
    def __init__(self, rows: sp.csr_array, own: IntArray, arcs: IntArray) -> None:
        loaded = np.diff(rows.indptr)
        self.extent = {k: Extent(*map(int, each)) for k, each in enumerate(zip(own, loaded, arcs, strict=True))}
        self.chunks: dict[int, list[int]] = {k: [k] for k in self.extent}
        self._near = _shared_rows(rows)  # by piece: rows in common with others, added up over their chunks
        self._surely = [dict(near) for near in self._near]  # of two of their chunks at least, so not too many
        self._next = len(self.chunks)

    def join_sharing(self, memory: Memory, budget: float) -> None:
        waiting = [(-shared, a, b) for a, near in enumerate(self._near) for b, shared in near.items() if a < b]
        heapq.heapify(waiting)
        while waiting:
            shared, a, b = heapq.heappop(waiting)
            if a not in self.chunks or b not in self.chunks or self._near[a].get(b) != -shared:
                continue
            both = self.extent[a].joined(self.extent[b], self._surely[a][b])
            if memory(both) > budget:
                continue
            new = self._join(a, b, both)
            for other, common in self._near[new].items():
                heapq.heappush(waiting, (-common, min(new, other), max(new, other)))

    def fill(self, memory: Memory, budget: float) -> None:
        """Pieces in order of their first chunks, each into the one before it if there is room."""
        into: int | None = None
        for piece in sorted(self.chunks, key=lambda each: min(self.chunks[each])):
            if into is not None:
                both = self.extent[into].joined(self.extent[piece], 0)
                if memory(both) <= budget:
                    into = self._join(into, piece, both)
                    continue
            into = piece

    def numbered(self) -> IntArray:
        piece_of = np.zeros(sum(map(len, self.chunks.values())), np.int64)
        for number, chunks in enumerate(sorted(self.chunks.values(), key=min)):
            piece_of[chunks] = number
        return piece_of

    def _join(self, a: int, b: int, both: Extent) -> int:
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


def _shared_rows(rows: sp.csr_array) -> list[dict[int, int]]:
    """For every chunk, how many rows it loads that another loads, too, by the other."""
    readers = np.bincount(rows.indices, minlength=rows.shape[1])
    few = sp.csr_array(rows)
    few.data = (readers[few.indices] <= HUB).astype(np.int64)
    few.eliminate_zeros()
    common = (few @ few.T).tocsr()
    found = []
    for k in range(rows.shape[0]):
        here = slice(common.indptr[k], common.indptr[k + 1])
        pairs = zip(common.indices[here].tolist(), common.data[here].tolist(), strict=True)
        found.append({other: shared for other, shared in pairs if other != k})
    return found
