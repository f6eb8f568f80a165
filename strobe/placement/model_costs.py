"""Bytes and load of a model per cell, as placements need them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from strobe.ops.sparse.csr import FloatArray, IntArray

CELL_LOAD = 16
"""Load of a cell in arcs. On one core, recurrent stages of 32 columns took 500 to 600 ns per cell, forward and
backward; sparse products of 32 columns 20 to 40 ns per arc."""


@dataclass(frozen=True, eq=False)
class CellSetSizes:
    """Sizes of K sets of cells: cells, incoming arcs, and sequences."""

    cells: IntArray | FloatArray  # [K]
    arcs: IntArray | FloatArray  # [K]
    sequences: IntArray | FloatArray  # [K]

    def scale_by(self, scale: FloatArray) -> CellSetSizes:
        """Multiply all sizes of each set."""
        return CellSetSizes(self.cells * scale, self.arcs * scale, self.sequences * scale)

    def __len__(self) -> int:
        return len(self.cells)


LoadModel = Callable[[CellSetSizes], FloatArray]
"""Cost of computing each set of cells, [K]; only ratios matter."""


def count_load(sizes: CellSetSizes) -> FloatArray:
    """Load in arcs: arcs plus ``CELL_LOAD`` per cell."""
    return (CELL_LOAD * sizes.cells + sizes.arcs).astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class ModelCosts:
    """Bytes that a forward pass sends per cut, and the load of cells. The defaults are one row per arc and state.

    Args:
        arc_bytes: per row that another rank reads, over all sparse products.
        state_bytes: per sequence that changes ranks between cells.
        cell_bytes: per cell that is not on the rank of its sequence, both ways.
        load_model: load of sets of cells.
        hops: number of sparse products.
    """

    arc_bytes: float = 128
    state_bytes: float = 128
    cell_bytes: float = 0
    load_model: LoadModel = count_load
    hops: int = 1
