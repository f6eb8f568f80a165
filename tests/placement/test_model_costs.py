from __future__ import annotations

import numpy as np

from strobe.placement.model_costs import CELL_LOAD, CellSetSizes, count_load

SIZES = CellSetSizes(np.array([2, 0, 5]), np.array([7, 0, 1]), np.array([1, 0, 4]))


def test_cells_and_arcs_are_counted_in_arcs() -> None:
    found = count_load(SIZES)
    assert found.dtype == np.float64
    assert found.tolist() == [2 * CELL_LOAD + 7, 0, 5 * CELL_LOAD + 1]


def test_sets_can_be_made_larger_each_by_itself() -> None:
    larger = SIZES.scale_by(np.array([1.0, 2.0, 0.5]))
    assert larger.cells.tolist() == [2, 0, 2.5]
    assert larger.arcs.tolist() == [7, 0, 0.5]
    assert larger.sequences.tolist() == [1, 0, 2]
    assert len(larger) == len(SIZES) == 3
