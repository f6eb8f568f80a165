"""Some of n things, in as few bytes as possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from strobe.ops.csr import IntArray, index_dtype

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Marks:
    """Which of ``size`` things are marked: a bit for each, or the numbers of those that are, whichever is smaller."""

    size: int
    held: npt.NDArray[Any]  # uint8: bits; else numbers

    @classmethod
    def of(cls, mask: Mask) -> Marks:
        kind = np.dtype(index_dtype(mask.size))
        if int(np.count_nonzero(mask)) * kind.itemsize < -(-mask.size // 8):
            return cls(mask.size, np.flatnonzero(mask).astype(kind))
        return cls(mask.size, np.packbits(mask))

    def mask(self) -> Mask:
        """True where a thing is marked, [size]."""
        if self.held.dtype == np.uint8:
            return np.unpackbits(self.held, count=self.size).view(np.bool_)
        mask = np.zeros(self.size, np.bool_)
        mask[self.held] = True
        return mask

    def numbers(self) -> IntArray:
        """The marked ones, ascending."""
        return np.flatnonzero(self.mask()) if self.held.dtype == np.uint8 else self.held
