"""Ingest against a slow, obvious reference, and over every kind of source."""

from __future__ import annotations

import gzip
import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from strobe.errors import InputError, OptionError
from strobe.graph import DynamicGraph
from strobe.graph.ingest import ByColumn, ByFile, Calendar, Clock, EventsEach, Every, Into, NodeTable, ingest, to_events
from strobe.graph.ingest.options import Presence
from strobe.graph.ingest.text_table import TextOptions
from tests.support.graphs import PlainGraph, dynamic_graphs

Event = tuple[int, int, int, float]  # source, destination, time, weight
SnapshotEdges = dict[tuple[int, int], list[float]]

EVENTS: list[Event] = [
    (30, 10, 0, 1.0),
    (10, 20, 1, 2.0),
    (10, 20, 3, 0.5),
    (20, 20, 4, 4.0),
    (10, 30, 12, 8.0),
    (30, 10, 14, 16.0),
]


COLUMNS: Any = {"src": "src", "dst": "dst", "time": "time", "weight": "weight"}


def columns(events: list[Event]) -> dict[str, np.ndarray[Any, Any]]:
    *ids_and_time, weight = (np.array(column) for column in zip(*events, strict=True))
    return dict(zip(COLUMNS, (*ids_and_time, weight.astype(np.float32)), strict=True))


def edges_of(graph: DynamicGraph, t: int) -> SnapshotEdges:
    """The edges of a snapshot by raw id, with the weights of parallel ones in ascending order."""
    assert graph.names is not None
    found: SnapshotEdges = defaultdict(list)
    src, dst, weight = graph[t].edges()
    for k in range(src.size):
        pair = (int(graph.names[int(src[k])]), int(graph.names[int(dst[k])]))
        pair = pair if graph.directed else (min(pair), max(pair))
        found[pair].append(1.0 if weight is None else float(weight[k]))
    return {pair: sorted(weights) for pair, weights in found.items()}


def reference(
    events: list[Event], length: int, *, life: int, repeated: str, directed: bool, self_loops: bool
) -> list[SnapshotEdges]:
    """What every snapshot must hold, event by event, without any cleverness."""
    first = min(time for _, _, time, _ in events) // length
    last = max(time for _, _, time, _ in events) // length
    snapshots = []
    for t in range(last - first + 1):
        listed: dict[tuple[int, int], list[tuple[int, float]]] = defaultdict(list)
        for src, dst, time, weight in events:
            born = time // length - first
            if born <= t < born + life and (self_loops or src != dst):
                pair = (src, dst) if directed else (min(src, dst), max(src, dst))
                listed[pair].append((time, weight))
        merged: SnapshotEdges = {}
        for pair, found in listed.items():
            weights = [weight for _, weight in found]
            merged[pair] = {
                "keep": sorted(weights),
                "count": [float(len(weights))],
                "sum": [math.fsum(weights)],
                "last": [max(found)[1]],
            }[repeated]
        snapshots.append(merged)
    return snapshots


events_lists = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.integers(0, 6),
        st.integers(-20, 40),
        st.integers(-8, 8).map(lambda eighths: eighths / 8),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=25, deadline=None)
@given(
    events=events_lists,
    length=st.integers(1, 15),
    life=st.integers(1, 4),
    repeated=st.sampled_from(["keep", "count", "sum", "last"]),
    directed=st.booleans(),
    self_loops=st.booleans(),
    presence=st.sampled_from(["active", "seen", "always"]),
)
def test_edges_and_presence_agree_with_the_reference(
    events: list[Event], length: int, presence: Presence, **chosen: Any
) -> None:
    graph = ingest(columns(events), clock=Every(length), time_unit="number", presence=presence, **COLUMNS, **chosen)
    expected = reference(events, length, **chosen)
    assert [edges_of(graph, t) for t in range(len(graph))] == expected
    everyone = {node for src, dst, _, _ in events for node in (src, dst)}
    seen: set[int] = set()
    assert graph.names is not None
    for t, edges in enumerate(reference(events, length, **chosen | {"self_loops": True})):  # their nodes are there
        active = {node for pair in edges for node in pair}
        seen |= active
        present = {"active": active, "seen": seen, "always": everyone}[presence]
        assert {int(graph.names[int(node)]) for node in graph[t].nodes} == present


@settings(max_examples=10, deadline=None)
@given(
    events=events_lists,
    random=st.randoms(use_true_random=False),
    repeated=st.sampled_from(["keep", "count", "sum", "last"]),
    clock=st.sampled_from([Every(7), EventsEach(3), Into(4)]),
)
def test_shuffled_rows_give_the_same_graph(events: list[Event], random: Random, repeated: str, clock: Clock) -> None:
    assume(not isinstance(clock, Into) or len({time for _, _, time, _ in events}) > 1)
    options = {**COLUMNS, "time_unit": "number", "repeated": repeated, "clock": clock}
    first, second = (ingest(columns(rows), **options) for rows in (events, random.sample(events, len(events))))
    assert first == second
    assert first.times == second.times


@settings(max_examples=15, deadline=None)
@given(plain=dynamic_graphs())
def test_ingest_inverts_to_tables(plain: PlainGraph) -> None:
    # Kept parallel edges come in order of weight, whatever order the rows are in.
    by_weight = [replace(shot, edges=sorted(shot.edges, key=lambda edge: edge[2])) for shot in plain.snapshots]
    graph = replace(plain, snapshots=by_weight).build()
    # A feature that is no number is a bad row of a table, however welcome it is in memory.
    assume(all(snapshot.x is None or not np.isnan(snapshot.x).any() for snapshot in graph))
    edges, cells = to_events(graph)
    features = [name for name in cells.column_names if name.startswith("x")]
    label = "label" if "label" in cells.column_names else None
    again = ingest(
        edges,
        src="src",
        dst="dst",
        weight="weight" if "weight" in edges.column_names else None,
        clock=ByColumn("snapshot", values=range(len(graph))),
        repeated="keep",
        directed=graph.directed,
        renumber=False,
        num_nodes=graph.num_nodes,
        nodes=NodeTable(source=cells, id="node", time="snapshot", features=features, label=label),
    )
    if not len(graph):
        assert again.num_nodes == graph.num_nodes
        assert len(again) == 0
        return
    # A graph without features gets the derived ones of ingest.
    assert again == (graph if features else graph.with_features(again.features))


def write(path: Path, events: list[Event], delimiter: str, header: bool) -> Path:
    lines = ["src", "dst", "time", "weight"], *events
    text = "".join(delimiter.join(map(str, line)) + "\n" for line in lines[0 if header else 1 :])
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize(
    ("name", "delimiter", "header"),
    [
        ("e.csv", ",", True),
        ("e.tsv", "\t", False),
        ("e.csv.gz", ",", False),
        ("e.tsv.gz", "\t", True),
        ("e.txt", " ", True),
        ("e.txt", "  ", False),
        ("e.csv", ";", False),
        ("e.edges", "|", True),
    ],
)
def test_text_files_of_all_kinds_give_the_same_graph(tmp_path: Path, name: str, delimiter: str, header: bool) -> None:
    path = write(tmp_path / name, EVENTS, delimiter, header)
    given: Any = COLUMNS if header else dict(zip(COLUMNS, range(4), strict=True))
    assert ingest(path, clock=Every(5), **given) == ingest(columns(EVENTS), clock=Every(5), **COLUMNS)


def test_binary_and_in_memory_sources_give_the_same_graph(tmp_path: Path) -> None:
    table = columns(EVENTS)
    pq.write_table(pa.table(table), tmp_path / "e.parquet")
    np.savez(tmp_path / "e.npz", allow_pickle=False, **table)
    batches = pa.table(table).to_batches(max_chunksize=2)
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    sources = [tmp_path / "e.parquet", tmp_path / "e.npz", table, pa.table(table), pd.DataFrame(table), reader]
    graphs = [ingest(source, clock=Every(5), **COLUMNS) for source in sources]
    assert all(graph == graphs[0] for graph in graphs)
    assert len(graphs[0]) == 3


@pytest.mark.parametrize(
    ("content", "options", "names"),
    [
        (b"% asym\n# more\n\n1 2 1 100\n% in between\n2 3 1 101\n\n", {"src": 0, "dst": 1, "time": 3}, [1, 2, 3]),
        (b'src,dst,time\n"Smith, J.","O""Neil",1\n"two\nlines",x,2\n', {}, ['O"Neil', "Smith, J.", "two\nlines", "x"]),
        ("\ufeffsrc,dst,time\r\n1,2,3\r\n4,5,6\r\n".encode(), {}, [1, 2, 4, 5]),
        ("src,dst,time\nJosé,Zoë,1\n".encode("latin-1"), {"text": TextOptions(encoding="latin-1")}, ["José", "Zoë"]),
    ],
    ids=["comments and blank lines", "quoted fields", "byte order mark, windows", "another encoding"],
)
def test_text_files_are_read_by_the_rules(
    tmp_path: Path, content: bytes, options: dict[str, Any], names: list[int | str]
) -> None:
    (tmp_path / "events.csv").write_bytes(content)
    usual: dict[str, Any] = {"src": "src", "dst": "dst", "time": "time", "clock": Into(1)}
    graph = ingest(tmp_path / "events.csv", **(usual | options))
    assert list(graph.names or ()) == names


def test_string_ids_are_numbered_in_order_and_found_again(tmp_path: Path) -> None:
    table = {"a": ["zoe", "ann", "éva"], "b": ["bob", "zoe", "ann"], "t": [1, 1, 2]}
    graph = ingest(table, src="a", dst="b", time="t", clock=Every(1), out=tmp_path / "g")
    assert graph.names is not None
    assert list(graph.names) == sorted(["zoe", "ann", "éva", "bob"], key=str.encode)
    assert graph.names[graph.names.find("zoe")] == "zoe"


def test_sparse_integer_ids_are_numbered_in_order() -> None:
    table = {"a": [2**62, 5], "b": [7, 2**62], "t": [1, 1]}
    assert list(ingest(table, src="a", dst="b", time="t", clock=Every(1)).names or ()) == [5, 7, 2**62]


def test_ids_that_are_node_numbers_can_stay() -> None:
    table = {"a": [4], "b": [2], "t": [0]}
    graph = ingest(table, src="a", dst="b", time="t", clock=Every(1), renumber=False, num_nodes=9)
    assert graph.num_nodes == 9
    assert graph[0].nodes.tolist() == [2, 4]
    with pytest.raises(InputError, match="holds names"):
        ingest({"a": ["x"], "b": ["y"], "t": [0]}, src="a", dst="b", time="t", clock=Every(1), renumber=False)
    with pytest.raises(InputError, match="node 4, outside"):
        ingest(table, src="a", dst="b", time="t", clock=Every(1), renumber=False, num_nodes=3)


def test_one_file_per_snapshot(tmp_path: Path) -> None:
    for month, rows in (("2020-01", "1,2\n"), ("2020-02", "2,3\n3,1\n")):
        (tmp_path / f"{month}.csv").write_text(rows)
    files = sorted(tmp_path.glob("*.csv"))
    graph = ingest(files, src=0, dst=1, clock=ByFile())
    assert graph.times == ("2020-01", "2020-02")
    assert [snapshot.num_edges for snapshot in graph] == [1, 2]


@pytest.mark.parametrize(("weight", "merged"), [(None, 2.0), ("weight", 2.5)])
def test_repeated_edges_are_counted_or_summed_by_default(weight: str | None, merged: float) -> None:
    graph = ingest(columns(EVENTS), clock=Every(100), **(COLUMNS | {"weight": weight}))
    assert edges_of(graph, 0)[10, 20] == [merged]


def test_more_events_than_a_batch_and_more_snapshots_than_batches() -> None:
    rng = np.random.default_rng(0)
    size = 1_200_000
    table = {"s": rng.integers(0, 1000, size), "d": rng.integers(0, 1000, size), "t": rng.integers(0, 50, size)}
    graph = ingest(table, src="s", dst="d", time="t", clock=Every(1), repeated="keep")
    assert [snapshot.num_edges for snapshot in graph] == np.bincount(table["t"]).tolist()
    chosen = table["t"] == 17
    src, dst, _ = graph[17].edges()
    found = np.sort(src.astype(np.int64) * 1000 + dst)
    assert np.array_equal(found, np.sort(table["s"][chosen] * 1000 + table["d"][chosen]))


def test_the_graph_written_to_disk_is_the_one_in_memory(tmp_path: Path) -> None:
    options = {**COLUMNS, "clock": Every(5), "info": None}
    stages: list[str] = []
    written = ingest(columns(EVENTS), out=tmp_path / "g", on_stage=lambda s, d, n: stages.append(s), **options)
    assert written == ingest(columns(EVENTS), **options)
    listed = ["reading rows", "cutting snapshots", "numbering nodes", "sorting events", "writing snapshots"]
    assert list(dict.fromkeys(stages)) == listed
    assert [path.name for path in tmp_path.iterdir()] == ["g"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"time": None}, "needs a time column"),
        ({"clock": "month"}, "such as Calendar"),
        ({"life": 0}, "at least one snapshot"),
        ({"presence": "sometimes"}, "presence must be one of"),
        ({"repeated": "twice"}, "repeated must be one of keep, count, sum, last"),
        ({"ids": "names"}, "ids must be one of integer, string"),
        ({"time_unit": "days"}, "time_unit must be one of"),
        ({"ids": "string", "renumber": False}, "leave renumber on"),
        ({"num_nodes": 3}, "renumber=False"),
        ({"memory": "lots"}, "is not understood"),
        ({"repeated": "sum"}, "needs a weight column"),
        ({"clock": Calendar("day")}, "needs dates or unix times"),
        ({"skip_bad_rows": True}, "needs a file"),
    ],
)
def test_inconsistent_options_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        ingest(columns(EVENTS), **{"src": "src", "dst": "dst", "time": "time", "clock": Every(1), **options})
