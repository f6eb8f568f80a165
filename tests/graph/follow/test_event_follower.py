"""What is followed is what ``ingest`` makes of it all at once."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strobe.errors import BadRowsError, InputError, OptionError, StrobeError
from strobe.graph import DynamicGraph, Static, open_graph
from strobe.graph.follow import Follower, RowCounts, follow
from strobe.graph.follow import cutter as cutting_module
from strobe.graph.follow import followers as events_module
from strobe.graph.ingest import ByColumn, ByFile, Calendar, Clock, EventsEach, Every, Into, NodeTable, TextOptions
from strobe.graph.ingest.columns import YEAR_1, YEAR_10000
from strobe.graph.ingest.options import IngestOptions
from tests.support.follow_sources import Database, Event, Folder, Place, Text, named, offline, options

DAY = 86400


def _in_time(event: Event) -> tuple[Any, ...]:
    return (event[2], event[0], event[1], event[3])


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[list[Event]], IngestOptions]:
    """Events in order of time, in the portions in which they arrive, each in any order; and what is made of them."""
    strings = draw(st.booleans())
    node = st.integers(0, 5).map(lambda n: f"n{n}" if strings else 10 * n)
    time = st.integers(0, 24)
    clock: Clock = draw(st.sampled_from([Every(4), Every(2.5), Calendar("month"), EventsEach(3), ByColumn("time")]))
    scale = 12 * DAY if isinstance(clock, Calendar) else 1
    event = st.tuples(node, node, time.map(lambda t: t * scale), st.integers(1, 9).map(float))
    events: list[Event] = sorted(draw(st.lists(event, min_size=1, max_size=14)), key=_in_time)
    cuts = sorted(draw(st.lists(st.integers(0, len(events)), max_size=3)))
    portions = [events[a:b] for a, b in zip([0, *cuts], [*cuts, len(events)], strict=True)]
    chosen = options(
        clock,
        life=draw(st.integers(1, 3)),
        presence=draw(st.sampled_from(["active", "seen"])),
        repeated=draw(st.sampled_from([None, "count", "sum", "last", "keep"])),
        directed=draw(st.booleans()),
        self_loops=draw(st.booleans()),
        ids="string" if strings else "integer",
        time_unit="s" if scale > 1 else "number",
    )
    return [draw(st.permutations(portion)) for portion in portions], chosen


def _check(
    place: Place, path: Path, portions: list[list[Event]], chosen: IngestOptions, into: Path, **others: Any
) -> None:
    expected = named(offline([event for portion in portions for event in portion], chosen))
    following: Follower | None = None
    for k, portion in enumerate(portions):
        place.add(portion)
        following = following or follow(path, chosen, into=into, **others)
        built = following.poll()
        shown = named(following.open()) if following.open().names is not None else []
        assert [shot[1:] for shot in shown] == [shot[1:] for shot in expected[: len(shown)]]
        if k % 2:  # from time to time somebody else goes on
            following.close()
            following = None
            assert len(open_graph(into)) == built
    if isinstance(place, Text):
        place.end()
    with following or follow(path, chosen, into=into, **others) as last:
        assert last.poll(ended=True) == len(expected)
        assert last.ended
        assert last.counts == RowCounts(rows=sum(map(len, portions)))
        assert last.poll() == len(expected)
        graph = last.open()
    shown = named(graph)
    assert [shot[1:] for shot in shown] == [shot[1:] for shot in expected]
    if not isinstance(chosen.clock, EventsEach):
        assert [shot[0] for shot in shown] == [shot[0] for shot in expected]
    _check_order_of_arrival(graph)


def _check_order_of_arrival(graph: DynamicGraph) -> None:
    """Nodes are numbered in the order in which they come, those of one snapshot by name."""
    assert graph.names is not None
    known = 0
    for snapshot in graph:
        new = [int(node) for node in snapshot.nodes if node >= known]
        assert new == list(range(known, known + len(new)))
        assert [graph.names[node] for node in new] == sorted(graph.names[node] for node in new)
        known += len(new)


FEW: list[list[Event]] = [[("a", "b", 1, 1.0), ("b", "c", 5, 1.0)], [("a", "b", 4, 2.0), ("c", "d", 21, 1.0)]]


@pytest.mark.parametrize("kind", [Folder, Text, Database])
@settings(deadline=None, max_examples=2)
@given(stream=streams())
@example(stream=(FEW, options(Every(4), life=2)))
def test_following_gives_what_ingest_gives(
    tmp_path_factory: pytest.TempPathFactory, stream: tuple[list[list[Event]], IngestOptions], kind: Any
) -> None:
    folder = tmp_path_factory.mktemp("followed")
    path = folder / {Folder: "in", Text: "events.csv", Database: "events.db"}[kind]
    portions, chosen = stream
    if kind is Text:  # a line that is not whole is read with those after it
        portions = [sorted(portion, key=_in_time) for portion in portions]
    _check(kind(path), path, portions, chosen, folder / "graph")


def test_events_of_the_first_and_the_last_year_are_followed(tmp_path: Path) -> None:
    early: list[list[Event]] = [
        [("a", "b", YEAR_1, 1.0)],
        [("b", "c", YEAR_1 + DAY, 1.0)],
        [("c", "d", YEAR_1 + 900 * DAY, 1.0)],
    ]
    late: list[list[Event]] = [[("a", "b", YEAR_10000 - 1, 1.0)], [("b", "c", math.nextafter(YEAR_10000, 0), 1.0)]]
    for k, (portions, clock) in enumerate([(early, Every(400 * DAY)), (late, Every(7)), (late, Calendar("week"))]):
        chosen = options(clock, time_unit="s")
        _check(Text(tmp_path / f"{k}.csv"), tmp_path / f"{k}.csv", portions, chosen, tmp_path / f"graph{k}")


def test_backlogs_are_built_in_groups_of_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "MAX_ROWS_PER_BUILD", 3)
    events: list[Event] = [(n % 4, n % 3, float(n), 1.0) for n in range(12)]
    _check(Folder(tmp_path / "in"), tmp_path / "in", [events], options(Every(2), life=2), tmp_path / "graph")


def test_every_file_is_a_snapshot_as_soon_as_it_is_there(tmp_path: Path) -> None:
    place = Folder(tmp_path / "in")
    (place.path / ".hidden").write_text("no events")
    (place.path / "unfinished.part").write_text("no events")
    chosen = options(ByFile(), time=None, life=2)
    with follow(place.path, chosen, into=tmp_path / "graph") as following:
        for count, portion in enumerate([*FEW, []], 1):
            place.add(portion)
            assert following.poll() == count
        (place.path / "001.csv").unlink()  # what was read may go
        assert following.poll(ended=True) == 3
    with follow(place.path, chosen, into=tmp_path / "graph") as following:
        place.add([])
        assert following.poll() == 4
        graph = following.open()
    assert graph.times == ("001", "002", "003", "004")
    assert [len(edges) for _, _, edges in named(graph)] == [2, 3, 2, 0]


def test_values_of_a_column_come_in_order_of_appearance_or_as_listed(tmp_path: Path) -> None:
    def followed(into: str, clock: ByColumn) -> tuple[DynamicGraph, RowCounts]:
        place = Database(tmp_path / f"{into}.db")
        with follow(place.path, options(clock, time=None), into=tmp_path / into) as following:
            for marks in (["9", "10"], ["2"], ["10", "2"]):
                place.add([("a", "b", mark, 1.0) for mark in marks])  # type: ignore[misc]
                following.poll()
            following.poll(ended=True)
            return following.open(), following.counts

    graph, counts = followed("appeared", ByColumn("time"))
    assert graph.times == (9, 10, 2)
    assert graph.num_edges == 3
    assert counts == RowCounts(rows=5, late_rows=1)
    graph, counts = followed("listed", ByColumn("time", ["9", "0", "10", "2", "7"]))
    assert graph.times == (9, 0, 10, 2, 7)
    assert [shot.num_edges for shot in graph] == [1, 0, 1, 1, 0]
    with pytest.raises(InputError, match="holds '2', which is not among the given values"):
        followed("stray", ByColumn("time", ["9", "10"]))


@pytest.mark.parametrize("presence", ["active", "seen"])
def test_events_that_come_too_late_are_left_out_and_counted(presence: Any, tmp_path: Path) -> None:
    place = Text(tmp_path / "events.csv")
    chosen = options(Every(10), presence=presence)
    place.add([("a", "b", 12, 1.0), ("b", "c", 25, 1.0), ("c", "d", 52, 1.0)])
    place.add([])
    with follow(place.path, chosen, into=tmp_path / "graph") as following:
        assert following.poll() == 4
        place.add([("late", "b", 30, 1.0), ("later", "b", 3, 1.0), ("d", "a", 51, 1.0)])
        place.end()
        assert following.poll() == 4
        assert following.counts == RowCounts(rows=6, late_rows=2)
        assert following.poll(ended=True) == 5
        place.add([("late", "b", 55, 1.0), ("b", "e", 77, 1.0)])
        place.end()
        assert following.poll(ended=True) == 7
        assert following.counts == RowCounts(rows=8, late_rows=3)
        graph = following.open()
    kept = [("a", "b", 12, 1.0), ("b", "c", 25, 1.0), ("c", "d", 52, 1.0), ("d", "a", 51, 1.0), ("b", "e", 77, 1.0)]
    assert named(graph) == named(offline(kept, chosen))
    assert {name: graph.info[name] for name in ("rows", "late_rows", "life")} == {"rows": 8, "late_rows": 3, "life": 1}


def test_bad_rows_are_named_and_nothing_is_read(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("# of tests\nsrc,dst,time,weight\n1,2,3,1\n2,3,14,1\n")
    with follow(path, options(Every(10)), into=tmp_path / "graph") as following:
        assert following.poll() == 1
        good = path.read_text()
        path.write_text(good + "3,1,27,1\n4,x,28,1\n5,1,often,1\n")
        for _ in range(2):
            with pytest.raises(BadRowsError) as caught:
                following.poll()
            assert f"{path}, line 6: column 'dst': 'x' is not an integer" in str(caught.value)
            assert f"{path}, line 7: column 'time': 'often' is not a number" in str(caught.value)
        assert len(following.open()) == 1
        path.write_text(good + "3,1,27,1\n4,4,28,1\n")
        assert following.poll(ended=True) == 3
        assert following.counts == RowCounts(rows=4, comment_lines=1)


def test_a_quoted_field_that_arrives_in_two_parts_is_one_row(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text('src,dst,time,weight\na,b,3,1\n"c\nd')
    with follow(path, options(Every(10), ids="string"), into=tmp_path / "graph") as following:
        following.poll()
        assert following.counts.rows == 1
        path.write_text(path.read_text() + 'd",b,14,1\n"e\n')
        following.poll()
        assert following.counts.rows == 2
        path.write_text(path.read_text() + 'f",b,24,1\n')
        assert following.poll(ended=True) == 3
        assert following.counts == RowCounts(rows=3)
        assert set(following.open().names or ()) == {"a", "b", "c\ndd", "e\nf"}


def test_skip_bad_rows_leaves_bad_rows_out(tmp_path: Path) -> None:
    place = Database(tmp_path / "events.db")
    with follow(place.path, options(Every(10)), into=tmp_path / "graph", skip_bad_rows=True) as following:
        for time in (1, 11):
            place.add([(1, 2, time, 1.0), (2, None, time, 1.0)])
            following.poll()
        assert following.poll(ended=True) == 2
        assert following.counts == RowCounts(rows=2, bad_rows=2)
    rejects = (tmp_path / "graph.rejects.csv").read_text().splitlines()
    assert rejects[0] == "source,place,column,value,reason"
    assert [line.split(",")[2] for line in rejects[1:]] == ["2", "4"]
    assert "table the events" in rejects[1]


def test_a_text_file_that_is_another_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("src,dst,time,weight\n")
    with follow(path, options(Every(10)), into=tmp_path / "graph") as following:
        assert following.poll() == 0
        path.write_text("src,dst,time,weight\n1,2,3,1\n")
        following.poll()
        for other in ("", "src,dst,time,weight\n1,2,4,1\n7,8,9,1\n"):
            path.write_text(other)
            with pytest.raises(InputError, match="is not the file it was"):
                following.poll()
        path.unlink()
        with pytest.raises(InputError, match="cannot be read any more"):
            following.poll()


def test_a_time_that_would_make_endless_empty_snapshots_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutting_module, "MAX_EMPTY_SNAPSHOTS", 100)
    place = Folder(tmp_path / "in")
    place.add([(1, 2, 0, 1.0), (1, 2, 1e5, 1.0)])
    with (
        follow(place.path, options(Every(10), time_unit="s"), into=tmp_path / "graph") as following,
        pytest.raises(InputError, match="would make 10,001 snapshots of 2 events"),
    ):
        following.poll()


def test_resuming_with_other_options_is_refused(tmp_path: Path) -> None:
    place = Folder(tmp_path / "in")
    into = tmp_path / "graph"
    follow(place.path, options(Every(10), features=None), into=into).close()
    with pytest.raises(OptionError, match=r"life was 1 and is 2; .*'Every'.* and is .*'month'"):
        follow(place.path, options(Calendar("month"), life=2), into=into)
    with pytest.raises(OptionError, match=r"delimiter was None and is ';'"):
        follow(place.path, options(Every(10)), into=into, text=TextOptions(delimiter=";"))
    (tmp_path / "other").mkdir()
    with pytest.raises(OptionError, match=r"source was .*in' and is .*other'"):
        follow(tmp_path / "other", options(Every(10)), into=into)
    follow(place.path, options(Every(10)), into=into).close()  # as it was begun


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"presence": "always"}, "choose 'seen'"),
        ({"clock": Into(3)}, "Into cuts what has ended"),
        ({"nodes": NodeTable(source="nodes.csv", id="id", label="y")}, "a node table speaks of all nodes"),
        ({"renumber": False}, "leave renumber on"),
        ({"features": Static(np.ones((1, 1)))}, "choose derived ones"),
        ({"clock": ByFile(), "time": None}, "needs a directory"),
    ],
)
def test_options_that_need_all_events_are_refused(chosen: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("")
    with pytest.raises(OptionError, match=message):
        follow(tmp_path / "events.csv", options(**{"clock": Every(1), **chosen}), into=tmp_path / "graph")
    assert not (tmp_path / "graph").exists()


def test_sources_that_cannot_be_followed_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_text("")
    (tmp_path / "a.csv").write_text("")
    Database(tmp_path / "a.db")
    into, chosen = tmp_path / "into", options(Every(1))
    for source, message, others in (
        ("a.csv.gz", "cannot grow line by line", {}),
        ("a.csv", "no SQLite database", {"table": "events"}),
        ("a.db", "no table in .* named 'events'; did you mean 'the events'", {"table": "events"}),
        ("nothing", "no data set of that name", {}),
    ):
        with pytest.raises(StrobeError, match=message):
            follow(tmp_path / source, chosen, into=into, **others)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="say which columns"):
        follow(tmp_path / "a.csv", into=into)
    (tmp_path / "in").mkdir()
    with pytest.raises(OptionError, match="cannot grow in"):
        follow(tmp_path / "in", chosen, into=tmp_path / "in" / "graph")
    assert not into.exists()
