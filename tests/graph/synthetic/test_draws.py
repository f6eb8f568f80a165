"""Random rows, power laws and evolving edges."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.graph.synthetic import draws
from strobe.graph.synthetic.draws import (
    EvolvingEdges,
    RandomRows,
    RowRuns,
    avoid_self_loops,
    node_range,
    power_law_indices,
)
from strobe.ops.sparse.csr import FloatArray


def runs(*each: tuple[int, int, int]) -> RowRuns:
    """From (first, length, born) of each."""
    return RowRuns(*np.array(each, np.int64).reshape(-1, 3).T)


def test_any_row_can_be_read_again() -> None:
    stream = RandomRows(5, 1)
    rows = stream.rows(0, 100)
    assert rows.shape == (100, 4)
    np.testing.assert_array_equal(stream.rows(30, 50), rows[30:80])
    assert ((rows >= 0) & (rows < 1)).all()


def test_keys_give_unrelated_streams() -> None:
    assert not np.isin(RandomRows(5, 1).rows(0, 100), RandomRows(5, 2).rows(0, 100)).any()


def test_parts_join_short_runs_and_cut_long_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draws, "CHUNK", 10)
    stream = RandomRows(0)
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
    stream = RandomRows(3)
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
    index = power_law_indices(np.linspace(0, 1, 100_001)[:-1], 100, exponent=3.0)
    times = np.bincount(index)
    assert times.size == 100
    assert times.min() > 0
    # P(index < i) = sqrt(i / size) for exponent 3: of 100,000 the first gets 10,000, the first quarter half.
    assert times[0] == pytest.approx(10_000, rel=0.01)
    assert times[:25].sum() == pytest.approx(50_000, rel=0.01)


def test_power_law_stays_below_the_size_of_each_row() -> None:
    size = np.array([1, 2, 3, 2**31 - 2])
    assert (power_law_indices(np.full(4, np.nextafter(1, 0)), size, exponent=2.5) == size - 1).all()


def test_distinct_moves_only_equal_ends() -> None:
    moved = avoid_self_loops(np.array([0, 1, 2]), np.array([0, 2, 2]), 3)
    assert moved.tolist() == [1, 2, 0]


def test_first_ids_are_narrow() -> None:
    assert node_range(3).tolist() == [0, 1, 2]
    assert node_range(3).dtype == np.int32


def alive(ties: EvolvingEdges) -> set[tuple[float, ...]]:
    return {tuple(row) for numbers, _ in ties.parts() for row in numbers.tolist()}


def test_every_snapshot_has_the_given_number_of_edges() -> None:
    ties = EvolvingEdges(0)
    for count in (10, 25, 7, 0, 3):
        ties.step(count, 0.3)
        assert len(alive(ties)) == count


def test_churn_is_the_share_that_ends() -> None:
    ties, kept = EvolvingEdges(0), []
    ties.step(20_000, 0.3)
    for _ in range(5):
        before = alive(ties)
        ties.step(20_000, 0.3)
        kept.append(len(alive(ties) & before))
    # Binomial with standard deviation sqrt(20,000 * 0.3 * 0.7) = 65; five standard deviations.
    assert kept == pytest.approx([14_000] * 5, abs=5 * 65)


@pytest.mark.parametrize(("churn", "kept"), [(0.0, 50), (1.0, 0)])
def test_churn_0_keeps_all_and_churn_1_none(churn: float, kept: int) -> None:
    ties = EvolvingEdges(0)
    ties.step(50, churn)
    before = alive(ties)
    ties.step(60, churn)
    assert len(alive(ties) & before) == kept


def test_an_edge_that_ended_never_returns() -> None:
    ties, past = EvolvingEdges(0), set[tuple[float, ...]]()
    before = set[tuple[float, ...]]()
    for _ in range(10):
        ties.step(100, 0.4)
        now = alive(ties)
        past |= before - now
        assert not now & past
        before = now


def test_the_oldest_go_when_there_are_too_many() -> None:
    ties = EvolvingEdges(0)
    for count in (10, 20, 30):
        ties.step(count, 0.0)
    ties.step(15, 0.0)
    born = np.concatenate([born for _, born in ties.parts()])
    assert np.bincount(born).tolist() == [0, 5, 10]


@pytest.mark.parametrize("churn", [0.0, 0.01])
def test_a_long_past_is_not_read_birth_by_birth(churn: float, monkeypatch: pytest.MonkeyPatch) -> None:
    ties = EvolvingEdges(0)
    for t in range(500):
        ties.step(10 * t, churn)
    reads: list[int] = []
    read = RandomRows.rows

    def counted(stream: RandomRows, first: int, count: int) -> FloatArray:
        reads.append(count)
        return read(stream, first, count)

    monkeypatch.setattr(RandomRows, "rows", counted)
    assert len(alive(ties)) == 4990
    assert len(reads) < 10
