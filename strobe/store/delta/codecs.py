"""Compact encodings of masks and arc keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from strobe.ops.sparse.csr import IntArray, index_dtype

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class CompactMask:
    """A mask as packed bits or as indices, whichever is smaller."""

    size: int
    data: npt.NDArray[Any]  # uint8: packed bits; else indices

    @classmethod
    def of(cls, mask: Mask) -> CompactMask:
        dtype = np.dtype(index_dtype(mask.size))
        if int(np.count_nonzero(mask)) * dtype.itemsize < -(-mask.size // 8):
            return cls(mask.size, np.flatnonzero(mask).astype(dtype))
        return cls(mask.size, np.packbits(mask))

    def to_mask(self) -> Mask:
        """Boolean mask, [size]."""
        if self.data.dtype == np.uint8:
            return np.unpackbits(self.data, count=self.size).view(np.bool_)
        mask = np.zeros(self.size, np.bool_)
        mask[self.data] = True
        return mask

    def indices(self) -> IntArray:
        """Ascending indices of True."""
        return np.flatnonzero(self.to_mask()) if self.data.dtype == np.uint8 else self.data


@dataclass(frozen=True, eq=False)
class PackedKeys:
    """Ascending keys, destination * N + source: 8 bytes each, or in CSR (4 bytes per source, 8 per destination),
    whichever is smaller."""

    data: tuple[IntArray, ...]  # keys; or destinations, offsets, sources

    @classmethod
    def of(cls, keys: IntArray, num_nodes: int) -> PackedKeys:
        dst = keys // max(num_nodes, 1)
        first = np.flatnonzero(np.diff(dst, prepend=-1))
        dtype = np.dtype(index_dtype(max(num_nodes, keys.size)))
        if (2 * first.size + 1 + keys.size) * dtype.itemsize >= keys.nbytes:
            return cls((keys,))
        src = keys - dst * num_nodes
        return cls((dst[first].astype(dtype), np.append(first, keys.size).astype(dtype), src.astype(dtype)))

    def unpack(self, num_nodes: int) -> IntArray:
        if len(self.data) == 1:
            return self.data[0]
        destinations, offsets, sources = self.data
        keys = np.repeat(destinations.astype(np.int64) * num_nodes, np.diff(offsets))
        keys += sources
        return keys
