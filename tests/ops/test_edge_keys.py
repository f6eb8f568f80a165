from __future__ import annotations

import numpy as np
import pytest

from strobe.ops.csr import IntArray
from strobe.ops.edge_keys import taken_apart


@pytest.mark.parametrize(("size", "edges"), [(1, 3), (7, 0), (7, 40), (50_000_000, 200)])
def test_keys_are_taken_apart_block_by_block(size: int, edges: int) -> None:
    draw = np.random.default_rng(0)
    row: IntArray = draw.integers(0, size, edges)
    col = np.where(draw.random(edges) < 0.3, row, draw.integers(0, size, edges))
    key = np.sort(row * size + col)
    degree = np.zeros(size, np.int32)
    found = [taken_apart(part, size, degree) for part in (key[: edges // 2], key[edges // 2 :])]
    np.testing.assert_array_equal(np.concatenate([each for each, _ in found]), key % size)
    np.testing.assert_array_equal(degree, np.bincount(row, minlength=size))
    assert sum(loops for _, loops in found) == (row == col).sum()
    assert all(each.dtype == np.int32 for each, _ in found)
