from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.graph.synthetic import draws
from strobe.graph.synthetic.draws import Draws, Runs, distinct, first_ids, power_law


def runs(*each: tuple[int, int, int]) -> Runs:
    """From (first, length, born) of each."""
    return Runs(*np.array(each, np.int64).reshape(-1, 3).T)


def test_any_row_can_be_read_again() -> None:
    stream = Draws(5, 1)
    rows = stream.rows(0, 100)
    assert rows.shape == (100, 4)
    np.testing.assert_array_equal(stream.rows(30, 50), rows[30:80])
    assert ((rows >= 0) & (rows < 1)).all()


def test_keys_give_unrelated_streams() -> None:
    assert not np.isin(Draws(5, 1).rows(0, 100), Draws(5, 2).rows(0, 100)).any()


def test_parts_join_short_runs_and_cut_long_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draws, "CHUNK", 10)
    stream = Draws(0)
    parts = list(stream.parts(runs((0, 3, 7), (100, 0, 8), (50, 24, 9))))
    assert [len(numbers) for numbers, _ in parts] == [10, 10, 7]
    np.testing.assert_array_equal(
        np.concatenate([numbers for numbers, _ in parts]), np.concatenate([stream.rows(0, 3), stream.rows(50, 24)])
    )
    assert np.concatenate([born for _, born in parts]).tolist() == [7] * 3 + [9] * 24


GAPS = st.sampled_from([0, 1, 5, 127, 128, 129, 1000])


@given(st.lists(st.tuples(GAPS, st.integers(0, 9)), max_size=8), st.booleans(), st.sampled_from([1, 7, 1 << 20]))
def test_parts_are_the_rows_of_each_run_wherever_it_lies(
    stretches: list[tuple[int, int]], backwards: bool, chunk: int
) -> None:
    each, row = [], 0
    for born, (gap, length) in enumerate(stretches):
        each.append((row + gap, length, born))
        row += gap + length
    each = each[::-1] if backwards else each
    stream = Draws(3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draws, "CHUNK", chunk)
        parts = list(stream.parts(runs(*each)))
    rows = [stream.rows(first, length) for first, length, _ in each]
    np.testing.assert_array_equal(
        np.concatenate([np.empty((0, 4)), *(numbers for numbers, _ in parts)]),
        np.concatenate([np.empty((0, 4)), *rows]),
    )
    births = itertools.chain.from_iterable([born] * length for _, length, born in each)
    assert [born for _, borns in parts for born in borns.tolist()] == list(births)


def test_power_law_reaches_every_index_and_prefers_low_ones() -> None:
    index = power_law(np.linspace(0, 1, 100_001)[:-1], 100, exponent=3.0)
    times = np.bincount(index)
    assert times.size == 100
    assert times.min() > 0
    # P(index < i) = sqrt(i / size) for exponent 3: of 100,000 the first gets 10,000, the first quarter half.
    assert times[0] == pytest.approx(10_000, rel=0.01)
    assert times[:25].sum() == pytest.approx(50_000, rel=0.01)


def test_power_law_stays_below_the_size_of_each_row() -> None:
    size = np.array([1, 2, 3, 2**31 - 2])
    assert (power_law(np.full(4, np.nextafter(1, 0)), size, exponent=2.5) == size - 1).all()


def test_distinct_moves_only_equal_ends() -> None:
    moved = distinct(np.array([0, 1, 2]), np.array([0, 2, 2]), 3)
    assert moved.tolist() == [1, 2, 0]


def test_first_ids_are_narrow() -> None:
    assert first_ids(3).tolist() == [0, 1, 2]
    assert first_ids(3).dtype == np.int32
