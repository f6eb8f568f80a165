"""Keys of arcs in as few bytes as possible."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from strobe.ops.csr import IntArray, index_dtype


@dataclass(frozen=True, eq=False)
class PackedKeys:
    """Ascending keys, destination times N plus source: 8 bytes each, or by destination, whichever is smaller.

    By destination a source takes 4 bytes, and every destination that has any takes 8 more.
    """

    held: tuple[IntArray, ...]  # keys; or destinations, offsets, sources

    @classmethod
    def of(cls, keys: IntArray, num_nodes: int) -> PackedKeys:
        dst = keys // max(num_nodes, 1)
        first = np.flatnonzero(np.diff(dst, prepend=-1))
        kind = np.dtype(index_dtype(max(num_nodes, keys.size)))
        if (2 * first.size + 1 + keys.size) * kind.itemsize >= keys.nbytes:
            return cls((keys,))
        src = keys - dst * num_nodes
        return cls((dst[first].astype(kind), np.append(first, keys.size).astype(kind), src.astype(kind)))

    def unpacked(self, num_nodes: int) -> IntArray:
        if len(self.held) == 1:
            return self.held[0]
        destinations, offsets, sources = self.held
        keys = np.repeat(destinations.astype(np.int64) * num_nodes, np.diff(offsets))
        keys += sources
        return keys
