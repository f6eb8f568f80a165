from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from strobe.ops.csr import IntArray, row_pointers
from strobe.ops.degrees import counted, largest, looked_up


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_degrees_are_counted_and_looked_up(dtype: Any) -> None:
    draw = np.random.default_rng(0)
    row = np.sort(draw.integers(0, 50, 300))
    col: IntArray = draw.integers(0, 60, 300).astype(dtype)
    row_ptr: IntArray = row_pointers(np.bincount(row, minlength=60)).astype(dtype)
    out = counted(col, 60, dtype)
    np.testing.assert_array_equal(out, np.bincount(col, minlength=60))
    assert out.dtype == dtype
    assert largest(row_ptr, out) == max(np.diff(row_ptr).max(), out.max())
    table = draw.standard_normal((largest(row_ptr, out) + 1, 2)).astype(np.float32)
    expected = np.stack([table[np.diff(row_ptr), 0], table[out, 1]], axis=1)
    np.testing.assert_array_equal(looked_up(row_ptr, out, table), expected)


def test_no_cell_has_no_degree() -> None:
    nobody = np.zeros(0, np.int32)
    assert largest(np.zeros(1, np.int32), nobody) == 0
    assert looked_up(np.zeros(1, np.int32), nobody, np.zeros((1, 2), np.float32)).shape == (0, 2)
