"""What a model does with cells, as far as those who place them need to know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from strobe.ops.csr import FloatArray, IntArray

CELL_LOAD = 16
"""A cell costs as much as so many arcs. Recurrent stages of 32 columns took 500 to 600 ns a cell, there and back, on
one core, products with a sparse matrix of as many columns 20 to 40 ns an arc."""


@dataclass(frozen=True, eq=False)
class Sizes:
    """How large some sets of cells are: their cells, the arcs that end in them, the sequences they have cells of."""

    cells: IntArray | FloatArray  # [K]
    arcs: IntArray | FloatArray  # [K]
    sequences: IntArray | FloatArray  # [K]

    def times(self, scale: FloatArray) -> Sizes:
        """Sets of the same kind, each so many times as large."""
        return Sizes(self.cells * scale, self.arcs * scale, self.sequences * scale)

    def __len__(self) -> int:
        return len(self.cells)


Loads = Callable[[Sizes], FloatArray]
"""What computing sets of cells costs, each by itself, [K]; only ratios matter."""


def counted(sizes: Sizes) -> FloatArray:
    """Cells and arcs, in arcs."""
    return (CELL_LOAD * sizes.cells + sizes.arcs).astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class Work:
    """Bytes that a pass forward sends for each thing that a placement cuts, and what cells cost.

    ``arc_bytes``: a row that some other rank reads, in all sparse products. ``state_bytes``: what goes along where a
    sequence changes ranks. ``cell_bytes``: what goes and comes for a cell that is not with its sequence's owner.
    ``hops``: how far a cell reads along edges, in sparse products. Without a model: one row each along edges and
    sequences, one product.
    """

    arc_bytes: float = 128
    state_bytes: float = 128
    cell_bytes: float = 0
    loads: Loads = counted
    hops: int = 1
