from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from strobe.placement.blocks import cut
from tests.placement.cases import smallest_largest

LOADS = st.lists(st.integers(0, 9) | st.just(50), max_size=9)


def of_blocks(loads: list[int], num_blocks: int) -> list[int]:
    block = cut(np.array(loads, np.int64), num_blocks)
    assert (np.diff(block) >= 0).all()
    return [int(load) for load in np.bincount(block, loads, num_blocks)]


@given(LOADS, st.integers(1, 6))
@example([20, 1, 20, 3, 5, 2, 9], 4)  # blocks that are only even with their neighbours may have 21 here
@example([9, 3, 3, 0, 9, 2, 2], 3)
def test_no_other_cuts_have_a_smaller_largest_block(loads: list[int], num_blocks: int) -> None:
    assert max(of_blocks(loads, num_blocks)) == smallest_largest(loads, num_blocks)


@given(LOADS, st.integers(1, 6))
def test_every_block_has_something_where_there_is_enough(loads: list[int], num_blocks: int) -> None:
    block = cut(np.array(loads, np.int64), num_blocks)
    assert len(set(block.tolist())) == min(len(loads), num_blocks)


def test_blocks_that_need_not_be_largest_are_even() -> None:
    assert of_blocks([50, 1, 1, 1, 1, 1, 1], 4) == [50, 2, 2, 2]
    assert of_blocks([1, 1, 1, 1, 1, 1, 50], 4) == [2, 2, 2, 50]


@given(LOADS, st.integers(2, 6))
def test_no_neighbours_are_more_even_with_another_cut_between_them(loads: list[int], num_blocks: int) -> None:
    block = cut(np.array(loads, np.int64), num_blocks).tolist()
    if len(loads) < num_blocks:
        return
    for left in range(num_blocks - 1):
        both = [load for load, at in zip(loads, block, strict=True) if at in (left, left + 1)]
        apart = [abs(sum(both[:at]) - sum(both[at:])) for at in range(1, len(both))]
        assert apart[block.count(left) - 1] == min(apart)


def test_few_things_are_spread_over_all_blocks() -> None:
    assert of_blocks([3, 4], 4) == [3, 0, 4, 0]


def test_many_things_are_cut_in_time() -> None:
    loads = np.random.default_rng(0).integers(1, 1000, 20_000)
    sums = np.bincount(cut(loads, 64), loads)
    assert sums.max() - sums.min() <= 2 * loads.max()
