from __future__ import annotations

import numpy as np
import pytest

from strobe.ops import native
from strobe.ops.runtime.njit import SMALL
from strobe.ops.sparse.csr import IntArray
from strobe.tasks.positions import find_positions


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("sizes", [(0, 5), (5, 0), (SMALL, 1), (SMALL, SMALL), (2 * SMALL, 300), (SMALL, 8 * SMALL)])
def test_positions_are_those_of_a_dictionary(
    sizes: tuple[int, int], ascending: bool, dtype: type, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setattr(native, "base_library", lambda: None)
    draw = np.random.default_rng(sum(sizes))
    nodes: IntArray = np.sort(draw.choice(10 * sizes[1] + 1, sizes[1], replace=False)).astype(dtype)
    queries: IntArray = draw.integers(0, 12 * sizes[1] + 2, sizes[0]).astype(dtype)
    queries = np.sort(queries) if ascending else queries
    where = {node: k for k, node in enumerate(nodes.tolist())}
    assert find_positions(queries, nodes).tolist() == [where.get(node, -1) for node in queries.tolist()]


def test_positions_in_the_same_nodes_count_up() -> None:
    nodes = np.arange(0, 3 * SMALL, 3)
    assert find_positions(nodes.copy(), nodes).tolist() == list(range(SMALL))
