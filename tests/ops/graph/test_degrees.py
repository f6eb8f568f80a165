from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from strobe.ops import native
from strobe.ops.graph.degrees import count_occurrences, decode_edge_keys, lookup_by_degree, max_degree
from strobe.ops.runtime.njit import SMALL
from strobe.ops.sparse.csr import IntArray, row_pointers


@pytest.fixture(params=["kernels", "numpy"], autouse=True)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With compiled kernels, and where there are none."""
    if request.param == "numpy":
        monkeypatch.setattr(native, "base_library", lambda: None)


@pytest.mark.parametrize("size", [60, 2 * SMALL])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_degrees_are_counted_and_looked_up(dtype: Any, size: int) -> None:
    draw = np.random.default_rng(0)
    row = np.sort(draw.integers(0, size - 10, 5 * size))
    col: IntArray = draw.integers(0, size, 5 * size).astype(dtype)
    row_ptr: IntArray = row_pointers(np.bincount(row, minlength=size)).astype(dtype)
    out = count_occurrences(col, size, dtype)
    np.testing.assert_array_equal(out, np.bincount(col, minlength=size))
    assert out.dtype == dtype
    assert max_degree(row_ptr, out) == max(np.diff(row_ptr).max(), out.max())
    table = draw.standard_normal((max_degree(row_ptr, out) + 1, 2)).astype(np.float32)
    expected = np.stack([table[np.diff(row_ptr), 0], table[out, 1]], axis=1)
    np.testing.assert_array_equal(lookup_by_degree(row_ptr, out, table), expected)


def test_no_cell_has_no_degree() -> None:
    nobody = np.zeros(0, np.int32)
    assert max_degree(np.zeros(1, np.int32), nobody) == 0
    assert lookup_by_degree(np.zeros(1, np.int32), nobody, np.zeros((1, 2), np.float32)).shape == (0, 2)


@pytest.mark.parametrize(
    ("size", "edges"), [(1, 3), (7, 0), (7, 40), (7, 5 * SMALL), (100_000, 200), (100_000, 5 * SMALL)]
)
def test_edge_keys_are_decoded_block_by_block(size: int, edges: int) -> None:
    draw = np.random.default_rng(0)
    row: IntArray = draw.integers(0, size, edges)
    col = np.where(draw.random(edges) < 0.3, row, draw.integers(0, size, edges))
    key = np.sort(row * size + col)
    degree = np.zeros(size, np.int32)
    found = [decode_edge_keys(part, size, degree) for part in (key[: edges // 2], key[edges // 2 :])]
    np.testing.assert_array_equal(np.concatenate([each for each, _ in found]), key % size)
    np.testing.assert_array_equal(degree, np.bincount(row, minlength=size))
    assert sum(loops for _, loops in found) == (row == col).sum()
    assert all(each.dtype == np.int32 for each, _ in found)
