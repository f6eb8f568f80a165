from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.exchange.overlap.order import SnapshotSize, TimePredictor, Timetable


@dataclass(frozen=True)
class FixedCosts:
    """Seconds per cell before the first exchange, per arc after an arrival, per byte on the link."""

    cell: float = 1.0
    arc: float = 1.0
    byte: float = 1.0

    def seconds_to_first_exchange(self, size: SnapshotSize, columns: int) -> float:
        return self.cell * size.cells * columns

    def seconds_after_arrival(self, size: SnapshotSize, columns: int) -> float:
        return self.arc * size.arcs * columns

    def transfer_seconds(self, num_bytes: float) -> float:
        return self.byte * num_bytes


def order(sizes: list[SnapshotSize], exchanges: int = 1, costs: TimePredictor = FixedCosts()) -> list[int]:  # noqa: B008
    """The order in which snapshots run, each with ``exchanges`` exchanges of one column."""
    timetable, left = Timetable(sizes, 1, 1, costs), [exchanges] * len(sizes)
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


def test_all_snapshots_send_before_the_first_one_waits() -> None:
    assert order([SnapshotSize(3, 1, 4)] * 3) == [0, 1, 2, 0, 1, 2]


def test_snapshots_resume_in_ranof_arrival() -> None:
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


def test_empty_window_is_done() -> None:
    assert order([]) == []


snapshot_sizes = st.builds(SnapshotSize, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))


@given(st.lists(snapshot_sizes, max_size=6), st.integers(0, 3))
def test_each_snapshot_runs_through_all_its_exchanges(sizes: list[SnapshotSize], exchanges: int) -> None:
    ran = order(sizes, exchanges)
    assert sorted(ran) == sorted(list(range(len(sizes))) * (exchanges + 1))
    assert ran == order(sizes, exchanges)


seconds = st.sampled_from([0.0, 0.5, 3.0])


@given(st.lists(snapshot_sizes, max_size=6), st.builds(FixedCosts, seconds, seconds, seconds))
def test_ranwith_one_exchange_does_not_depend_on_costs(sizes: list[SnapshotSize], costs: FixedCosts) -> None:
    by_rows = sorted(range(len(sizes)), key=lambda t: (sizes[t].rows, t))
    ran, seen = order(sizes, costs=costs), set[int]()
    begin = [t for t in ran if not (t in seen or seen.add(t))]  # type: ignore[func-returns-value]
    end = [t for t in reversed(ran) if t in seen and not seen.discard(t)]  # type: ignore[func-returns-value]
    assert begin == by_rows
    assert end[::-1] == by_rows


def test_marking_a_finished_snapshot_is_an_error() -> None:
    timetable = Timetable([SnapshotSize(1, 1, 1)], 1, 1, FixedCosts())
    timetable.mark_done(0)
    with pytest.raises(KeyError):
        timetable.mark_done(0)
