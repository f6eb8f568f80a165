"""The order of snapshots, in predicted time alone."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.exchange.overlap_order import Extent, Predictor, Timetable


@dataclass(frozen=True)
class Told:
    """Seconds as a test wants them: what a cell takes before the first exchange, an arc after an arrival, a byte on
    the link."""

    cell: float = 1.0
    arc: float = 1.0
    byte: float = 1.0

    def until_first(self, extent: Extent, columns: int) -> float:
        return self.cell * extent.cells * columns

    def after_arrival(self, extent: Extent, columns: int) -> float:
        return self.arc * extent.arcs * columns

    def on_the_way(self, num_bytes: float) -> float:
        return self.byte * num_bytes


def order(extents: list[Extent], exchanges: int = 1, told: Predictor = Told()) -> list[int]:  # noqa: B008
    """Which snapshot goes on, each through so many exchanges of one column."""
    timetable, left = Timetable(extents, 1, 1, told), [exchanges] * len(extents)
    found = []
    while (t := timetable.next()) is not None:
        found.append(t)
        if left[t]:
            left[t] -= 1
            timetable.waits(t, 1)
        else:
            timetable.ended(t)
    return found


def test_snapshots_that_are_ready_alike_go_by_the_shortest_message_and_then_by_time() -> None:
    extents = [Extent(0, 1, rows) for rows in (5, 2, 5, 1)]
    assert order(extents) == [3, 1, 0, 2, 3, 1, 0, 2]


def test_all_rows_leave_before_the_first_arrival_is_waited_for() -> None:
    assert order([Extent(3, 1, 4)] * 3) == [0, 1, 2, 0, 1, 2]


def test_a_snapshot_goes_on_when_its_rows_are_there_not_in_order_of_time() -> None:
    # 0 has long rows. While they travel 1 and 2 wait behind them or come before: shorter messages took the link first.
    extents = [Extent(0, 1, 100), Extent(0, 1, 1), Extent(0, 1, 1)]
    assert order(extents, exchanges=2) == [1, 2, 0, 1, 2, 0, 1, 2, 0]


def test_the_link_takes_one_message_after_the_other() -> None:
    timetable = Timetable([Extent(0, 0, 10), Extent(1, 0, 10)], 1, 1, Told())
    timetable.waits(0, 1)  # on the link until 10
    timetable.waits(1, 3)  # from then until 40
    assert timetable.next() == 0
    timetable.waits(0, 1)  # it was ready at 10, and its next rows come at 50
    assert timetable.next() == 1


def test_nothing_to_send_is_ready_at_once() -> None:
    timetable = Timetable([Extent(0, 5, 10), Extent(0, 5, 0)], 1, 1, Told())
    assert timetable.next() == 1
    timetable.waits(1, 1)
    assert timetable.next() == 1, "of those that are ready now its rows take the shortest"


def test_a_window_of_nothing_is_done() -> None:
    assert order([]) == []


sizes = st.builds(Extent, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))


@given(st.lists(sizes, max_size=6), st.integers(0, 3))
def test_every_snapshot_goes_through_all_its_exchanges(extents: list[Extent], exchanges: int) -> None:
    found = order(extents, exchanges)
    assert sorted(found) == sorted(list(range(len(extents))) * (exchanges + 1))
    assert found == order(extents, exchanges), "no clock has a say"


costs = st.sampled_from([0.0, 0.5, 3.0])


@given(st.lists(sizes, max_size=6), st.builds(Told, costs, costs, costs))
def test_with_one_exchange_snapshots_go_by_their_rows_whatever_things_cost(extents: list[Extent], told: Told) -> None:
    """So that results do not depend on what was measured, to the bit."""
    by_rows = sorted(range(len(extents)), key=lambda t: (extents[t].rows, t))
    found, seen = order(extents, told=told), set[int]()
    begin = [t for t in found if not (t in seen or seen.add(t))]  # type: ignore[func-returns-value]
    end = [t for t in reversed(found) if t in seen and not seen.discard(t)]  # type: ignore[func-returns-value]
    assert begin == by_rows
    assert end[::-1] == by_rows


def test_ending_somebody_who_is_done_is_an_error_of_ours() -> None:
    timetable = Timetable([Extent(1, 1, 1)], 1, 1, Told())
    timetable.ended(0)
    with pytest.raises(KeyError):
        timetable.ended(0)
