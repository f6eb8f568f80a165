from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from strobe.graph.diff import diff_keys
from strobe.store.delta.base import CompactMask, merge_keys
from tests.support.stored_sequences import slow_at_first

keys = st.lists(st.integers(0, 8), max_size=12).map(sorted)


@slow_at_first
@given(keys, keys)
def test_what_stays_and_what_is_new_make_the_numbers_of_now(before: list[int], now: list[int]) -> None:
    old, new = np.array(before, np.int64), np.array(now, np.int64)
    how = diff_keys(old, new)
    assert Counter(old[how.stay].tolist()) == Counter(before) & Counter(now)
    found, again = merge_keys(old, CompactMask.of(~how.stay), new[how.new])
    assert found.tolist() == now
    assert again.stay.tolist() == how.stay.tolist()
    assert again.new.tolist() == how.new.tolist()
    assert how.is_empty == (before == now)


@slow_at_first
@given(keys, keys)
def test_what_goes_with_numbers_stays_with_them(before: list[int], now: list[int]) -> None:
    old, new = np.array(before, np.int64), np.array(now, np.int64)
    how = diff_keys(old, new)
    assert how.apply(old * 10, new[how.new] * 10).tolist() == [key * 10 for key in now]
    places = how.map_positions(np.arange(len(now)))
    assert [now[at] for at in places if at >= 0] == old[how.stay].tolist()


@slow_at_first
@given(st.lists(st.booleans(), max_size=100))
def test_marks_come_back_in_few_bytes(marked: list[bool]) -> None:
    mask = np.array(marked, np.bool_)
    marks = CompactMask.of(mask)
    assert marks.to_mask().tolist() == marked
    assert marks.indices().tolist() == np.flatnonzero(mask).tolist()
    assert marks.data.nbytes == min(-(-len(marked) // 8), 4 * sum(marked))
