"""What counting rows between ranks stands on."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from strobe.engine.flows import each_once, in_one, levels, one_by_one
from strobe.exchange.legs import NOBODY, _levels

ranks = st.integers(0, 3)


@given(st.lists(st.integers(0, 20)), st.sampled_from([21, 1_000]))
def test_keys_come_once_and_ascending_whether_they_are_sorted_or_marked(keys: list[int], limit: int) -> None:
    assert each_once(np.array(keys, np.int64), limit).tolist() == sorted(set(keys))


@given(st.lists(st.tuples(ranks, ranks).filter(lambda pair: pair[0] != pair[1])))
def test_levels_are_those_of_a_relay_and_none_where_sequences_go_round_in_circles(pairs: list[tuple[int, int]]) -> None:
    told = np.zeros((4, 4), bool)
    for source, target in pairs:
        told[source, target] = True
    found, expected = levels(told), _levels(told)
    assert (found is None) == (expected is None)
    assert found is None or expected is None or found.tolist() == expected.tolist()


@given(st.lists(st.lists(st.tuples(st.integers(NOBODY, 3), ranks)), max_size=3))
def test_rows_that_stay_and_rows_of_nobody_do_not_travel(window: list[list[tuple[int, int]]]) -> None:
    rows = [(np.array([a for a, _ in each], np.int16), np.array([b for _, b in each], np.int16)) for each in window]
    travel = [[(a, b) for a, b in each if a not in (b, NOBODY)] for each in window]
    for found, expected in zip(one_by_one(rows, 4), travel, strict=True):
        assert found.rows_sent.tolist() == [sum(a == rank for a, _ in expected) for rank in range(4)]
        assert found.rows_received.tolist() == [sum(b == rank for _, b in expected) for rank in range(4)]
        assert found.messages_sent.tolist() == [len({b for a, b in expected if a == rank}) for rank in range(4)]
        assert found.turned.messages_sent.tolist() == [len({a for a, b in expected if b == rank}) for rank in range(4)]
    whole, everything = in_one(rows, 4), [pair for each in travel for pair in each]
    assert whole.rows_sent.tolist() == [sum(a == rank for a, _ in everything) for rank in range(4)]
    assert whole.messages_received.tolist() == [len({a for a, b in everything if b == rank}) for rank in range(4)]
