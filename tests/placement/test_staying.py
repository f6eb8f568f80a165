from __future__ import annotations

from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from strobe.placement.staying import renamed


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 3)), max_size=12))
def test_no_other_names_keep_more_nodes_where_they_were(nodes: list[tuple[int, int]]) -> None:
    part, last = np.array(nodes, np.int64).reshape(-1, 2).T
    best = max(int((np.array(names)[part] == last).sum()) for names in permutations(range(4)))
    assert int((renamed(part, last, 4) == last).sum()) == best


def test_parts_stay_the_same_but_for_their_names() -> None:
    part = np.array([0, 0, 1, 2, 2])
    assert renamed(part, np.array([2, 2, 0, 1, -1]), 3).tolist() == [2, 2, 0, 1, 1]
