"""Clocks, each on events whose snapshots are worked out by hand."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from strobe.errors import InputError, OptionError
from strobe.graph import DynamicGraph
from strobe.graph.ingest import ByColumn, Calendar, Clock, EventsEach, Every, Into, ingest
from strobe.graph.ingest.clock import MAX_SNAPSHOTS
from strobe.graph.ingest.columns import YEAR_1, YEAR_10000, guess_ids, guess_time

DAY = 86400


def cut(times: list[Any], clock: Clock, **options: Any) -> DynamicGraph:
    """A graph with the one-way pair (2k, 2k + 1) for the k-th time."""
    table = {"s": [2 * k for k in range(len(times))], "d": [2 * k + 1 for k in range(len(times))], "t": times}
    return ingest(table, src="s", dst="d", time="t", clock=clock, renumber=False, **options)


def sizes(graph: DynamicGraph) -> list[int]:
    return [snapshot.num_edges for snapshot in graph]


def unix(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


NEW_YEAR = [unix(f"{date}") for date in ("2019-12-31T23:59:59", "2020-01-01", "2020-03-01", "2020-03-31T12:00")]


@pytest.mark.parametrize(
    ("times", "clock", "names", "counts"),
    [
        ([-3, 12, 19, 41], Every(10), (-10, 0, 10, 20, 30, 40), [1, 0, 2, 0, 0, 1]),  # aligned, empty ones kept
        ([unix("2020-03-01T23:59:59"), unix("2020-03-02")], Every.parse("1d"), ("2020-03-01", "2020-03-02"), [1, 1]),
        (
            [unix("2020-03-01T22:30"), unix("2020-03-02T00:10")],
            Every.parse("12h"),
            ("2020-03-01T12:00:00", "2020-03-02T00:00:00"),
            [1, 1],
        ),
        (NEW_YEAR[:2], Calendar("hour"), ("2019-12-31T23:00", "2020-01-01T00:00"), [1, 1]),
        (NEW_YEAR[:2], Calendar("day"), ("2019-12-31", "2020-01-01"), [1, 1]),
        ([*NEW_YEAR[:2], unix("2020-01-06")], Calendar("week"), ("2019-12-30", "2020-01-06"), [2, 1]),
        (NEW_YEAR, Calendar("month"), ("2019-12", "2020-01", "2020-02", "2020-03"), [1, 1, 0, 2]),
        (NEW_YEAR, Calendar("quarter"), ("2019-Q4", "2020-Q1"), [1, 3]),
        (NEW_YEAR, Calendar("year"), ("2019", "2020"), [1, 3]),
        (["1969-12-31", "1970-01-01", "1968-05-05"], Calendar("year"), ("1968", "1969", "1970"), [1, 1, 1]),
        (["9998-12-31", "9999-12-31"], Calendar("year"), ("9998", "9999"), [1, 1]),
        ([50, 10, 40, 20, 30], EventsEach(2), (10, 30, 50), [2, 2, 1]),
        ([0, 1], EventsEach(10**400), (0,), [2]),
        ([0, 1, 5, 10], Into(2), (0, 5), [2, 2]),  # the last event is in the last snapshot
        ([3, 3], Into(1), (3,), [2]),
    ],
)
def test_events_are_cut_as_worked_out_by_hand(
    times: list[Any], clock: Clock, names: tuple[Any, ...], counts: list[int]
) -> None:
    graph = cut(times, clock)
    assert graph.times == names
    assert sizes(graph) == counts


@pytest.mark.parametrize(("unit", "first", "count"), [("hour", "2019-12-31T23:00", 2174), ("day", "2019-12-31", 92)])
def test_long_spans_are_cut_by_the_calendar(unit: Any, first: str, count: int) -> None:
    graph = cut(NEW_YEAR, Calendar(unit))
    assert graph.times[0] == first
    assert len(graph) == count
    assert [sizes(graph)[at] for at in (0, 1, -1)] == [1, 1, 1]


def test_events_each_counts_in_order_of_time() -> None:
    assert cut([50, 10, 40, 20, 30], EventsEach(2))[0].edges()[0].tolist() == [2, 6]


def test_one_time_makes_one_snapshot() -> None:
    with pytest.raises(InputError, match="one and the same time"):
        cut([3, 3], Into(2))


@pytest.mark.parametrize(
    ("marks", "values", "names", "counts"),
    [
        ([10, 9, 10], None, (9, 10), [1, 2]),  # numbers as numbers
        (["spring", "autumn"], None, ("autumn", "spring"), [1, 1]),
        (["spring", "autumn"], ["spring", "summer", "autumn"], ("spring", "summer", "autumn"), [1, 0, 1]),
        (["1", "1.0", "01", "2"], None, ("01", 1, "1.0", 2), [1, 1, 1, 1]),
        (["01", "2", "1.0", "1"], None, ("01", 1, "1.0", 2), [1, 1, 1, 1]),
    ],
)
def test_values_of_a_column_are_snapshots(marks: list[Any], values: Any, names: Any, counts: list[int]) -> None:
    graph = by_column(marks, values)
    assert graph.times == names
    assert sizes(graph) == counts


def by_column(marks: list[Any], values: Any) -> DynamicGraph:
    table = {"s": list(range(len(marks))), "d": list(range(1, len(marks) + 1)), "mark": marks}
    return ingest(table, src="s", dst="d", clock=ByColumn("mark", values))


def test_listed_values_are_all_values_and_different() -> None:
    with pytest.raises(InputError, match="'autumn', which is not among"):
        by_column(["spring", "autumn"], ["spring"])
    with pytest.raises(OptionError, match="twice"):
        by_column([1], [1, 1])


@pytest.mark.parametrize(
    "times",
    [
        ["2020-01-01", "2020-02-01"],
        ["2020-01-01T00:00:00Z", "2020-02-01T02:00:00+02:00"],
        ["2020-01-01 00:00:00", "2020-02-01 00:00:00.5"],
        ["2020-01", "2020-02"],
        [unix("2020-01-01"), unix("2020-02-01")],
        [unix("2020-01-01") * 1000, unix("2020-02-01") * 1000],
        [unix("2020-01-01") + 0.25, unix("2020-02-01") + 0.75],
        [datetime(2020, 1, 1), datetime(2020, 2, 1)],
        [datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 2, 1, tzinfo=UTC)],
        [datetime(2020, 1, 1).date(), datetime(2020, 2, 1).date()],
    ],
)
def test_times_of_all_kinds_are_understood(times: list[Any]) -> None:
    graph = cut(times, Calendar("month"))
    assert graph.times == ("2020-01", "2020-02")
    assert sizes(graph) == [1, 1]


def test_time_unit_can_be_given() -> None:
    assert cut([0, 86_400_000], Calendar("day"), time_unit="ms").times == ("1970-01-01", "1970-01-02")
    assert cut([0, 86_400], Calendar("day"), time_unit="s").times == ("1970-01-01", "1970-01-02")
    assert cut([1_500_000_000, 1_500_000_001], Every(1), time_unit="number").times == (1_500_000_000, 1_500_000_001)


@pytest.mark.parametrize(
    ("samples", "unit"),
    [
        (["0", "8736"], "number"),
        (["0.923"], "number"),
        (["1082040961"], "s"),
        (["1500000000000"], "ms"),
        (["2009-10"], "iso"),
        (["2009-10-01T12:00:00Z"], "iso"),
        (["abc"], "number"),
        (["nan", "17"], "number"),
        (["5\x1f", "\x1d8"], "number"),  # control characters make no number
        (["5\x0b", "8\x0b", "2020-09-13"], "iso"),
        ([], "number"),
    ],
)
def test_the_unit_of_time_is_guessed(samples: list[str], unit: str) -> None:
    assert guess_time(samples) == unit


def test_control_characters_make_no_integer_of_an_id() -> None:
    assert guess_ids([" 5\t", "8"]) == "integer"
    assert guess_ids(["5\x0b", "8\x0b", "7"]) == "string"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Calendar("fortnight"),  # type: ignore[arg-type]
        lambda: EventsEach(0),
        lambda: EventsEach(True),
        lambda: Into(True),
        lambda: EventsEach(1.5),  # type: ignore[arg-type]
        lambda: Into(0),
        lambda: Into(2.5),  # type: ignore[arg-type]
        lambda: Every("7d"),  # type: ignore[arg-type]
        *(partial(Every.parse, text) for text in ("", "7 parsecs", "d", "-3d", "0d")),
        lambda: ByColumn(True),
        lambda: ByColumn("m", values="ab"),
        lambda: ByColumn("m", values=[1, None]),  # type: ignore[list-item]
    ],
)
def test_invalid_clocks_are_refused(make: Any) -> None:
    with pytest.raises(OptionError):
        make()


@settings(max_examples=15, deadline=None)
@given(
    times=st.lists(st.floats(-1e6, 1e6) | st.integers(-500, 500).map(lambda n: n / 20), min_size=1, max_size=8),
    clock=st.sampled_from([Every(0.1), Every(0.05), Every(0.3), Into(3), EventsEach(2), Every(1e5)]),
)
def test_no_event_is_lost_to_rounding(times: list[float], clock: Clock) -> None:
    assume(max(times) - min(times) < 500 or clock == Every(1e5) or not isinstance(clock, Every))
    assume(not isinstance(clock, Into) or (max(times) - min(times)) / 3 > 0)
    assert sum(sizes(cut(times, clock, time_unit="number", repeated="keep"))) == len(times)


@pytest.mark.parametrize("later", [0, DAY])
def test_an_event_a_hair_before_midnight_is_not_lost(later: int) -> None:
    hair = math.nextafter(unix("2024-02-01"), 0)
    assert sum(sizes(cut([hair, hair + later], Calendar("month")))) == 2


def test_a_duration_with_a_unit_needs_times_with_one() -> None:
    with pytest.raises(OptionError, match="plain numbers"):
        cut([0, 100], Every.parse("7d"))
    assert len(cut([0, 100], Every.parse("7"))) == 15


@pytest.mark.parametrize("clock", [Calendar("month"), Calendar("quarter"), Every.parse("30d")])
def test_a_date_without_end_is_the_last_snapshot(clock: Clock) -> None:
    assert sum(sizes(cut(["9999-12-31", "9998-01-01"], clock))) == 2


@pytest.mark.parametrize(
    ("times", "length", "names"),
    [
        (["0001-01-01"], 12345, ("0000-12-31T21:09:15",)),
        (["0001-01-01", "0001-01-07"], 7 * DAY, ("0000-12-28", "0001-01-04")),
        (["0001-01-01", "0001-12-31"], 1000 * DAY, ("-0002-09-16", "0001-06-12")),
        (["1960-01-01", "1980-01-01"], 999_999 * DAY, ("-0768-02-05", "1970-01-01")),
        (["1969-12-31"], 400 * 365.2425 * DAY * 30, ("-10030-01-01",)),
    ],
)
def test_a_snapshot_may_begin_before_the_year_1(times: list[str], length: float, names: tuple[str, ...]) -> None:
    graph = cut(times, Every(length))
    assert graph.times == names
    assert list(graph.times) == sorted(str(name) for name in graph.times)
    assert sum(sizes(graph)) == len(times)


@given(
    low=st.floats(YEAR_1, YEAR_10000, exclude_max=True, width=64),
    length=st.integers(1, 10**11) | st.sampled_from([k * DAY for k in (1, 7, 365, 146_097, 999_999)]),
)
def test_numpy_reads_the_names_of_snapshots_as_their_starts(low: float, length: int) -> None:
    found = Every(length).between(low, low, "unix")
    assert [np.datetime64(str(name), "s").astype(int) for name in found.names] == found.starts


def test_a_snapshot_of_any_length_has_a_name() -> None:
    [name] = cut(["1960-01-01"], Every(1e300)).times
    year = int(str(name)[: -len("-MM-DDTHH:MM:SS")])
    assert year * 365.2425 * DAY == pytest.approx(-1e300, rel=1e-12)


def test_a_start_that_is_rounded_into_the_year_10000_is_named_in_9999() -> None:
    last = math.nextafter(YEAR_10000, 0)
    assert cut([last], Every(0.009), time_unit="s").times == ("9999-12-31T23:59:59",)


@pytest.mark.parametrize("times", [[1.0, 2.0], [2.0]])
def test_a_length_too_short_for_numbers_of_snapshots_is_refused(times: list[float]) -> None:
    with pytest.raises(OptionError, match=r"1e-320.*a longer duration"):
        cut(times, Every(1e-320))


@pytest.mark.parametrize("length", [0.1, 0.3, 0.7, 1 / 3, 0.05, 1e-3, 1.1])
def test_multiples_of_a_length_begin_snapshots_however_they_are_rounded(length: float) -> None:
    count = 300
    written = [float(f"{k * length:.12g}") for k in range(count)] if length != 1 / 3 else []
    for times in ([k * length for k in range(count)], written):
        if times:
            assert sizes(cut(times, Every(length), time_unit="number")) == [1] * count


def test_tenths_are_named_as_they_are_written() -> None:
    assert cut([0.0, 0.3, 2.9], Every(0.1)).times[:4] == (0, "0.1", "0.2", "0.3")
    assert len(cut([k / 10 for k in range(30)], Every(0.1))) == 30


@pytest.mark.parametrize(
    ("times", "clock", "limit", "reason"),
    [
        ([1, 10**6 + 2], Every(1), MAX_SNAPSHOTS, "1,000,002 snapshots.*a longer duration.*max_snapshots"),
        ([0, 1], Into(10**6 + 1), MAX_SNAPSHOTS, "1,000,001 snapshots.*max_snapshots"),
        (["0002-01-01", "2024-01-01"], Calendar("hour"), MAX_SNAPSHOTS, "17,724,481 snapshots.*max_snapshots"),
        ([0, 100], Every(1), 100, "101 snapshots"),
        ([3, 5], Into(10**12), 10**400, "1,000,000,000,000 snapshots.*memory"),
        ([3, 5], Into(10**400), 10**400, "about 1e400 snapshots.*memory"),
        ([0, 10**12], Every(0.1), 10**400, "10,000,000,000,001 snapshots.*memory"),
    ],
)
def test_more_snapshots_than_the_limit_or_memory_allow_are_refused_with_their_number(
    times: list[Any], clock: Clock, limit: int, reason: str
) -> None:
    with pytest.raises(OptionError, match=reason):
        cut(times, clock, max_snapshots=limit, time_unit="iso" if isinstance(times[0], str) else "number")


def test_a_million_snapshots_fit_into_any_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strobe.graph.ingest.clock.process_memory_bytes", lambda: 1 << 20)
    starts = Into(MAX_SNAPSHOTS).between(0.0, 1.0, "number").starts
    assert starts is not None
    assert len(starts) == MAX_SNAPSHOTS
    with pytest.raises(OptionError, match=r"1,000,001 snapshots.*1\.0 MiB.*fewer"):
        Into(MAX_SNAPSHOTS + 1).between(0.0, 1.0, "number", 2 * MAX_SNAPSHOTS)


@pytest.mark.parametrize("life", [10**20, 3])
def test_an_edge_that_outlives_all_snapshots_stays(life: int) -> None:
    assert sizes(cut([0, 1, 2], Every(1), life=life)) == [1, 2, 3]


def test_ids_that_would_make_too_many_nodes_are_refused_with_their_number() -> None:
    table = {"s": [0, 1], "d": [1, 2 * 10**9], "t": [0, 1]}
    with pytest.raises(OptionError, match=r"2,000,000,001 nodes.*max_nodes"):
        ingest(table, src="s", dst="d", time="t", clock=Every(1), renumber=False)
    few = {"s": [0, 1], "d": [1, 12], "t": [0, 1]}
    with pytest.raises(OptionError, match="13 nodes"):
        ingest(few, src="s", dst="d", time="t", clock=Every(1), renumber=False, max_nodes=12)
    assert ingest(few, src="s", dst="d", time="t", clock=Every(1), renumber=False, max_nodes=13).num_nodes == 13
