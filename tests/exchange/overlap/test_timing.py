from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.comm import Comm, SingleRankComm
from strobe.exchange.overlap.timing import SnapshotSize, Timetable, TimingModel, fit_line
from strobe.ops.sparse.csr import FloatArray
from tests.support.ranks import as_threads


def sums(inputs: list[list[float]], seconds: list[float]) -> FloatArray:
    rows: FloatArray = np.column_stack([np.array(inputs), np.array(seconds)])
    return np.asarray(rows.T @ rows)


@pytest.mark.parametrize(
    ("inputs", "seconds", "expected"),
    [
        (
            [[1.0, k, 3 * k % 7] for k in range(9)],
            [1e-4 + 2e-3 * k + 5e-3 * (3 * k % 7) for k in range(9)],
            [1e-4, 2e-3, 5e-3],
        ),
        ([[1.0, k] for k in range(1, 5)], [4.0, 3.0, 2.0, 1.0], [2.5, 0.0]),  # no negative coefficient
        ([[1.0, 3.0, 0.0], [1.0, 5.0, 0.0]], [3.0, 5.0], [0.0, 1.0, 0.0]),  # an input that is always 0
    ],
)
def test_fit_line_is_least_squares_without_negative_coefficients(
    inputs: list[list[float]], seconds: list[float], expected: list[float]
) -> None:
    fitted = fit_line(sums(inputs, seconds))
    assert fitted is not None
    assert fitted.tolist() == pytest.approx(expected, rel=1e-4, abs=1e-9)
    assert fit_line(np.zeros((3, 3))) is None


def test_default_predictions_grow_with_size() -> None:
    timing = TimingModel(SingleRankComm())
    small, large = SnapshotSize(10, 20, 5), SnapshotSize(10**6, 10**7, 10**5)
    assert 0 < timing.seconds_to_first_exchange(small, 4) < timing.seconds_to_first_exchange(large, 4)
    assert 0 < timing.seconds_after_arrival(small, 4) < timing.seconds_after_arrival(large, 4)
    assert 0 == timing.transfer_seconds(0) < timing.transfer_seconds(100) < timing.transfer_seconds(10**6)


def measure(timing: TimingModel, per_cell: float) -> None:
    for cells in (100, 200, 400):
        timing.record_compute(SnapshotSize(cells, 0, 0), 2, per_cell * cells * 2, began=True)
        timing.record_arrival(cells, 0.0, 0.0, 0.0)  # no wait: ignored
    timing.end_stage()


def test_measurements_of_all_ranks_are_fitted_at_the_next_epoch() -> None:
    def work(comm: Comm) -> tuple[float, float, float]:
        timing, size = TimingModel(comm), SnapshotSize(1000, 0, 0)
        before, link = timing.seconds_after_arrival(size, 2), timing.transfer_seconds(100)
        measure(timing, 1.0 + comm.rank)
        assert timing.seconds_after_arrival(size, 2) == before
        timing.begin_epoch()
        timing.begin_epoch()  # of another window
        assert timing.transfer_seconds(100) == link
        return before, timing.seconds_after_arrival(size, 2), timing.seconds_to_first_exchange(size, 2)

    (before, one, first), (_, other, _) = as_threads(work, 2)
    assert one == other == pytest.approx(3000.0)
    assert before < 1 > first


def test_transfer_time_counts_from_the_previous_arrival() -> None:
    timing = TimingModel(SingleRankComm())
    timing.record_arrival(1000, departed=10.0, requested=10.0, now=11.0)
    timing.record_arrival(2000, departed=10.0, requested=11.0, now=13.0)
    timing.record_arrival(500, departed=13.0, requested=13.25, now=13.5)
    assert timing.waited_s == pytest.approx(3.25)
    timing.end_stage()
    timing.begin_epoch()
    assert timing.transfer_seconds(4000) == pytest.approx(4.0)


def test_timing_model_is_shared_per_comm() -> None:
    one, other = SingleRankComm(), SingleRankComm()
    assert TimingModel.for_comm(one) is TimingModel.for_comm(one)
    assert TimingModel.for_comm(one) is not TimingModel.for_comm(other)


def test_state_dict_keeps_measurements_and_predictions() -> None:
    first, second = TimingModel(SingleRankComm()), TimingModel(SingleRankComm())
    assert first.state_dict() is None
    measure(first, 1.0)
    first.begin_epoch()
    measure(first, 3.0)
    state = first.state_dict()
    assert state is not None
    second.load_state_dict(state)
    size = SnapshotSize(1000, 0, 0)
    assert second.seconds_after_arrival(size, 2) == first.seconds_after_arrival(size, 2) == pytest.approx(2000.0)
    for each in (first, second):
        each.begin_epoch()
    assert second.seconds_after_arrival(size, 2) == first.seconds_after_arrival(size, 2) == pytest.approx(4000.0)


class FixedCosts(TimingModel):
    """Seconds per cell before the first exchange, per arc after an arrival, per byte on the link."""

    def __init__(self, cell: float = 1.0, arc: float = 1.0, byte: float = 1.0) -> None:
        super().__init__(SingleRankComm())
        self.cell, self.arc, self.byte = cell, arc, byte

    def seconds_to_first_exchange(self, size: SnapshotSize, columns: int) -> float:
        return self.cell * size.cells * columns

    def seconds_after_arrival(self, size: SnapshotSize, columns: int) -> float:
        return self.arc * size.arcs * columns

    def transfer_seconds(self, num_bytes: float) -> float:
        return self.byte * num_bytes


def order(sizes: list[SnapshotSize], exchanges: int = 1, costs: FixedCosts | None = None) -> list[int]:
    """The order in which snapshots run, each with ``exchanges`` exchanges of one column."""
    timetable, left = Timetable(sizes, 1, 1, costs or FixedCosts()), [exchanges] * len(sizes)
    ran = []
    while (t := timetable.next()) is not None:
        ran.append(t)
        if left[t]:
            left[t] -= 1
            timetable.mark_waiting(t, 1)
        else:
            timetable.mark_done(t)
    return ran


def test_ties_are_broken_by_the_shortest_message_and_then_by_time() -> None:
    sizes = [SnapshotSize(0, 1, rows) for rows in (5, 2, 5, 1)]
    assert order(sizes) == [3, 1, 0, 2, 3, 1, 0, 2]


def test_snapshots_resume_in_order_of_arrival() -> None:
    sizes = [SnapshotSize(0, 1, 100), SnapshotSize(0, 1, 1), SnapshotSize(0, 1, 1)]
    assert order(sizes, exchanges=2) == [1, 2, 0, 1, 2, 0, 1, 2, 0]


def test_messages_share_the_link() -> None:
    timetable = Timetable([SnapshotSize(0, 0, 10), SnapshotSize(1, 0, 10)], 1, 1, FixedCosts())
    timetable.mark_waiting(0, 1)  # on the link until 10
    timetable.mark_waiting(1, 3)  # from then until 40
    assert timetable.next() == 0
    timetable.mark_waiting(0, 1)  # it was ready at 10, and its next rows come at 50
    assert timetable.next() == 1


def test_snapshot_without_rows_is_ready_at_once() -> None:
    timetable = Timetable([SnapshotSize(0, 5, 10), SnapshotSize(0, 5, 0)], 1, 1, FixedCosts())
    assert timetable.next() == 1
    timetable.mark_waiting(1, 1)
    assert timetable.next() == 1


snapshot_sizes = st.builds(SnapshotSize, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))


@given(st.lists(snapshot_sizes, max_size=6), st.integers(0, 3))
def test_each_snapshot_runs_through_all_its_exchanges(sizes: list[SnapshotSize], exchanges: int) -> None:
    ran = order(sizes, exchanges)
    assert sorted(ran) == sorted(list(range(len(sizes))) * (exchanges + 1))
    assert ran == order(sizes, exchanges)


seconds = st.sampled_from([0.0, 0.5, 3.0])


@given(st.lists(snapshot_sizes, max_size=6), st.builds(FixedCosts, seconds, seconds, seconds))
def test_order_with_one_exchange_does_not_depend_on_costs(sizes: list[SnapshotSize], costs: FixedCosts) -> None:
    by_rows = sorted(range(len(sizes)), key=lambda t: (sizes[t].rows, t))
    ran, seen = order(sizes, costs=costs), set[int]()
    begin = [t for t in ran if not (t in seen or seen.add(t))]  # type: ignore[func-returns-value]
    end = [t for t in reversed(ran) if t in seen and not seen.discard(t)]  # type: ignore[func-returns-value]
    assert begin == by_rows
    assert end[::-1] == by_rows
