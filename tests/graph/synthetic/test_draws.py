from __future__ import annotations

import numpy as np
import pytest

from strobe.graph.synthetic import draws
from strobe.graph.synthetic.draws import Draws, Run, distinct, first_ids, power_law


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
    parts = list(stream.parts([Run(0, 3, 7), Run(100, 0, 8), Run(50, 24, 9)]))
    assert [len(numbers) for numbers, _ in parts] == [10, 10, 7]
    np.testing.assert_array_equal(
        np.concatenate([numbers for numbers, _ in parts]), np.concatenate([stream.rows(0, 3), stream.rows(50, 24)])
    )
    assert np.concatenate([born for _, born in parts]).tolist() == [7] * 3 + [9] * 24


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
