"""Sorted keys of edges taken apart: how many end in each row, and where they come from."""

from __future__ import annotations

from typing import Any

import numpy as np

from strobe.ops.compiled import compiled
from strobe.ops.csr import IntArray, fixed, index_dtype


def taken_apart(key: IntArray, size: int, degree: IntArray) -> tuple[IntArray, int]:
    """Sources of edges from their ascending keys among ``size`` nodes, and how many of them are self-loops. What ends
    in each node is added to ``degree`` [size]."""
    col = np.empty(key.size, index_dtype(size))
    return col, _taken_apart(fixed(key), size, degree, col)


@compiled
def _taken_apart(key: Any, size: int, degree: Any, col: Any) -> int:
    row, first, loops = 0, 0, 0
    for k in range(key.size):
        if key[k] - first >= size:
            row = key[k] // size
            first = row * size
        col[k] = key[k] - first
        degree[row] += 1
        loops += key[k] - first == row
    return loops
