from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.tasks.runs import with_one_more


@given(st.lists(st.lists(st.integers(), max_size=9), max_size=40))
def test_runs_hold_everything_in_order_and_are_few(arriving: list[list[int]]) -> None:
    runs: tuple[list[int], ...] = ()
    for new in arriving:
        runs = with_one_more(runs, new, list.__add__)
    assert [item for run in runs for item in run] == [item for new in arriving for item in new]
    assert all(2 * len(after) < len(before) for before, after in pairwise(runs))


@pytest.mark.parametrize("shrinking", [False, True])
def test_an_item_is_joined_a_few_times_however_many_arrive(shrinking: bool) -> None:
    joined = 0

    def join(one: range, other: range) -> range:
        nonlocal joined
        joined += len(one) + len(other)
        return range(len(one) + len(other))

    runs: tuple[range, ...] = ()
    sizes = [2000 - k if shrinking else 10 for k in range(1000)]
    for size in sizes:
        runs = with_one_more(runs, range(size), join)
    assert joined < 16 * sum(sizes)  # all of them every time would be 500
