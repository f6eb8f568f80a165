from __future__ import annotations

import numpy as np
import pytest

from strobe.comm import Alone, Comm
from strobe.exchange.overlap_order import Extent
from strobe.exchange.overlap_seconds import Seconds, fitted
from strobe.ops.csr import FloatArray
from tests.ranks import as_threads


def sums(inputs: list[list[float]], seconds: list[float]) -> FloatArray:
    rows: FloatArray = np.column_stack([np.array(inputs), np.array(seconds)])
    return np.asarray(rows.T @ rows)


def test_a_line_is_found_again() -> None:
    generator = np.random.default_rng(0)
    inputs = np.column_stack([np.ones(50), generator.integers(0, 10**6, (50, 2))])
    line = np.array([1e-4, 2e-9, 5e-9])
    found = fitted(sums(inputs.tolist(), (inputs @ line).tolist()))
    assert found is not None
    assert found == pytest.approx(line, rel=1e-4)


def test_more_work_never_takes_less_time() -> None:
    inputs = [[1.0, float(k)] for k in range(1, 5)]
    found = fitted(sums(inputs, [4.0, 3.0, 2.0, 1.0]))
    assert found is not None
    assert found.tolist() == pytest.approx([2.5, 0.0])


def test_what_was_never_there_costs_nothing() -> None:
    found = fitted(sums([[1.0, 3.0, 0.0], [1.0, 5.0, 0.0]], [3.0, 5.0]))
    assert found is not None
    assert found.tolist() == pytest.approx([0.0, 1.0, 0.0], abs=1e-9)


def test_without_measurements_there_is_no_line() -> None:
    assert fitted(np.zeros((3, 3))) is None


def test_before_anything_is_known_larger_takes_longer() -> None:
    seconds = Seconds(Alone())
    small, large = Extent(10, 20, 5), Extent(10**6, 10**7, 10**5)
    assert 0 < seconds.until_first(small, 4) < seconds.until_first(large, 4)
    assert 0 < seconds.after_arrival(small, 4) < seconds.after_arrival(large, 4)
    assert 0 == seconds.on_the_way(0) < seconds.on_the_way(100) < seconds.on_the_way(10**6)


def measured(seconds: Seconds, per_cell: float) -> None:
    for cells in (100, 200, 400):
        seconds.computed(Extent(cells, 0, 0), 2, per_cell * cells * 2, began=True)
        seconds.arrived(cells, 0.0, 0.0, 0.0)  # was there before: nothing is learnt of the link
    seconds.stage_ends()


def test_what_ranks_measured_is_known_to_all_alike_from_the_next_epoch_on() -> None:
    def work(comm: Comm) -> tuple[float, float, float]:
        seconds, extent = Seconds(comm), Extent(1000, 0, 0)
        before, link = seconds.after_arrival(extent, 2), seconds.on_the_way(100)
        measured(seconds, 1.0 + comm.rank)
        assert seconds.after_arrival(extent, 2) == before, "nothing changes within an epoch"
        seconds.epoch_begins()
        seconds.epoch_begins()  # another window's courier tells it, too
        assert seconds.on_the_way(100) == link
        return before, seconds.after_arrival(extent, 2), seconds.until_first(extent, 2)

    (before, one, first), (_, other, _) = as_threads(work, 2)
    assert one == other == pytest.approx(3000.0), "the mean of both ranks, 2000 numbers"
    assert before < 1 > first


def test_a_message_had_the_link_since_the_one_before_it_came() -> None:
    seconds = Seconds(Alone())
    seconds.arrived(1000, departed=10.0, asked=10.0, now=11.0)
    seconds.arrived(2000, departed=10.0, asked=11.0, now=13.0)
    seconds.arrived(500, departed=13.0, asked=13.25, now=13.5)
    assert seconds.waited == pytest.approx(3.25)
    seconds.stage_ends()
    seconds.epoch_begins()
    assert seconds.on_the_way(4000) == pytest.approx(4.0)


def test_a_run_has_one_that_all_its_windows_share() -> None:
    one, other = Alone(), Alone()
    assert Seconds.of(one) is Seconds.of(one)
    assert Seconds.of(one) is not Seconds.of(other)


def test_what_is_remembered_predicts_the_same_in_another_process() -> None:
    first, second = Seconds(Alone()), Seconds(Alone())
    assert first.remembered() is None
    measured(first, 1.0)
    first.epoch_begins()
    measured(first, 3.0)
    told = first.remembered()
    assert told is not None
    second.remember(told)
    extent = Extent(1000, 0, 0)
    assert second.after_arrival(extent, 2) == first.after_arrival(extent, 2) == pytest.approx(2000.0)
    for each in (first, second):
        each.epoch_begins()
    assert second.after_arrival(extent, 2) == first.after_arrival(extent, 2) == pytest.approx(4000.0)
