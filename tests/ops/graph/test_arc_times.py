from __future__ import annotations

import numpy as np
import pytest

from strobe.ops.graph.arc_times import sort_by_key


@pytest.mark.parametrize("largest", [9, 1 << 62])
def test_keys_are_sorted_with_their_times_also_where_they_do_not_fit_into_one_number(largest: int) -> None:
    key, times = np.array([largest, 3, largest, 0, largest]), np.array([1 << 20, 2, 0, 1, 1])
    expected = sorted(zip(key.tolist(), times.tolist(), strict=True))
    assert list(zip(*(each.tolist() for each in sort_by_key(key, times)), strict=True)) == expected
