"""Tables of all kinds are read for what they are: names, paths, types, and two ways of reading text that agree."""

from __future__ import annotations

from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.errors import BadRowsError, InputError, OptionError, StrobeError
from strobe.graph import DynamicGraph
from strobe.graph.ingest import (
    ByColumn,
    ByFile,
    Calendar,
    Every,
    Into,
    NodeTable,
    TextOptions,
    ingest,
    text_table,
)
from strobe.graph.ingest.sources import open_tables
from strobe.graph.ingest.text_table import TextTable


def read(source: Any, **options: Any) -> DynamicGraph:
    usual: dict[str, Any] = {"src": "s", "dst": "d", "time": "t", "clock": Into(1), "repeated": "keep"}
    return ingest(source, **(usual | options))


def pairs(graph: DynamicGraph) -> list[tuple[Any, Any]]:
    assert graph.names is not None
    src, dst, _ = graph[0].edges()
    return [(graph.names[int(u)], graph.names[int(v)]) for u, v in zip(src, dst, strict=True)]


FIELDS = st.sampled_from(["1", "2", "30", "007", " 4", "0x10", "-5", "", "a", '"b"', '"c,d"', "#e", "1.5", "nan", "é"])
LINES = st.lists(FIELDS, min_size=1, max_size=4) | st.just(["# note"]) | st.just([""])


@settings(max_examples=12, deadline=None)
@given(
    lines=st.lists(LINES, min_size=1, max_size=6),
    delimiter=st.sampled_from([",", " "]),
    ids=st.sampled_from(["integer", "string"]),
)
def test_fast_and_slow_text_readers_agree(
    lines: list[list[str]], delimiter: str, ids: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("both") / "f.txt"
    rows = ["1", "2", "3"], *lines
    path.write_text("".join(delimiter.join(row) + "\n" for row in rows))

    def outcome() -> Any:
        try:
            given_columns: dict[str, Any] = {"src": 0, "dst": 1, "time": 2, "time_unit": "number"}
            graph = read(path, ids=ids, text=TextOptions(delimiter=delimiter), **given_columns)
            return sorted(map(str, pairs(graph)))
        except StrobeError as error:
            return str(error)

    either_way = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TextTable, "read_fast", lambda *_: None)
        assert outcome() == either_way


@pytest.mark.parametrize("size", [8, 12, 16, 20, 24, 1 << 20])
@pytest.mark.parametrize("ending", ["", 'x,"open'])
def test_a_field_is_not_cut_where_a_block_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, ending: str
) -> None:
    path = tmp_path / "f.csv"
    path.write_text('d,s\nb,a\nd,"one\nc,e"\nf,g\n' + ending)
    monkeypatch.setattr(text_table, "BLOCK_BYTES", size)
    options: dict[str, Any] = {"time": None, "clock": ByFile(), "ids": "string"}
    if ending:
        with pytest.raises(BadRowsError, match="line 6"):
            read(path, **options)
    else:
        assert sorted(pairs(read(path, **options))) == [("a", "b"), ("g", "f"), ("one\nc,e", "d")]


def test_a_comment_or_a_blank_in_a_large_file_does_not_make_it_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "snap.txt"
    path.write_text("1 2 3 \n# in between them\n4  5 6\n\n7\t8 9\n")
    monkeypatch.setattr(TextTable, "read_with_lines", lambda *_: pytest.fail("read line by line"))
    assert read(path, src=0, dst=1, time=2).info["rows"] == 3


def test_column_names_are_case_sensitive(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("A,a,t\n1,2,0\n3,4,0\n")
    expected = [(1, 2), (3, 4)]
    assert pairs(read(path, src="A", dst="a")) == expected
    table = pa.table({"A": [1, 3], "a": [2, 4], "t": [0, 0]})
    assert pairs(read(table, src="A", dst="a")) == expected
    pq.write_table(table, tmp_path / "f.parquet")
    assert pairs(read(tmp_path / "f.parquet", src="A", dst="a")) == expected


def test_the_path_of_a_parquet_file_is_no_pattern_and_its_folder_no_column(tmp_path: Path) -> None:
    folder = tmp_path / "s=5"
    folder.mkdir()
    pq.write_table(pa.table({"s": [77], "d": [88], "t": [0]}), folder / "g[1].parquet")
    pq.write_table(pa.table({"s": [1], "d": [2], "t": [0]}), folder / "g1.parquet")
    assert pairs(read(folder / "g[1].parquet")) == [(77, 88)]


def test_only_the_wanted_columns_of_a_wide_table_are_read(tmp_path: Path) -> None:
    wide = {"s": [1, 2], "d": [2, 3], "t": [0, 0], **{f"x{k}": ["x", "y"] for k in range(3000)}}
    table = pa.table(wide)
    pq.write_table(table, tmp_path / "f.parquet")
    row = ",".join(map(str, table.slice(0, 1).to_pylist()[0].values()))
    (tmp_path / "f.csv").write_text(",".join(wide) + f"\n{row}\n" + row.replace("1,2,0", "2,3,0") + "\n\nbad\n")
    with duckdb.connect() as con:
        for source in (table, tmp_path / "f.parquet"):
            [found] = open_tables(con, source, TextOptions(), ["s", "d", "t"])
            assert [kind for kind in found.types.values() if kind] == ["BIGINT"] * 3
        [found] = open_tables(con, tmp_path / "f.csv", TextOptions(), ["s", "d", "t"])
        careful, bad = found.read_with_lines(con, ["s", "d", "t"])
        assert len(bad) == 1
        assert len(con.execute(f"DESCRIBE SELECT * FROM {careful.sql}").fetchall()) == 4
    for source in (table, tmp_path / "f.parquet", tmp_path / "f.csv"):
        graph = read(source, skip_bad_rows=True, rejects=tmp_path / "bad.csv")
        assert pairs(graph) == [(1, 2), (2, 3)]


@pytest.mark.parametrize(("unit", "zone"), [("s", "UTC"), ("ms", None), ("us", "Europe/Paris"), ("ns", None)])
def test_time_stamps_of_parquet_are_read_in_every_unit_and_zone(unit: Any, zone: str | None, tmp_path: Path) -> None:
    times = pa.array([0, 86400], pa.int64()).cast(pa.timestamp("s", zone)).cast(pa.timestamp(unit, zone))
    pq.write_table(pa.table({"s": [1, 2], "d": [2, 3], "t": times}), tmp_path / "f.parquet")
    assert read(tmp_path / "f.parquet", clock=Calendar("day")).times == ("1970-01-01", "1970-01-02")


@pytest.mark.parametrize(
    "options",
    [
        {"src": True},
        {"src": None},
        {"dst": b"d"},
        {"time": 1.5},
        {"weight": ("w",)},
        {"max_snapshots": None},
        {"max_nodes": "5"},
        {"num_nodes": -1, "renumber": False},
        {"life": "3"},
        {"out": "\0"},
        {"out": 3},
        {"rejects": "\0", "skip_bad_rows": True},
    ],
)
def test_options_of_the_wrong_type_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        read({"s": [1], "d": [2], "t": [3]}, **options)


@pytest.mark.parametrize(
    "make",
    [
        lambda: NodeTable(source={}, id=None, features=["x"]),  # type: ignore[arg-type]
        lambda: NodeTable(source={}, id="id", features="x"),
        lambda: NodeTable(source={}, id="id", features=["x"], missing="no"),  # type: ignore[arg-type]
        lambda: NodeTable(source={}, id="id"),
    ],
)
def test_node_tables_refuse_invalid_columns(make: Any) -> None:
    with pytest.raises(OptionError):
        make()


def test_names_that_would_mean_something_in_sql_are_only_names(tmp_path: Path) -> None:
    awkward = """s"; DROP TABLE events; --'"""
    graph = read({awkward: [1], "d": [2], "t": [3]}, src=awkward)
    assert pairs(graph) == [(1, 2)]
    path = tmp_path / "it's.csv"
    path.write_text(",s,d,t\n0,1,2,3\n")  # a column may have no name
    assert pairs(read(path)) == [(1, 2)]
    np.savez(tmp_path / "e.npz", allow_pickle=False, s=[1], d=[2], t=[3], odd=np.array([1j]))  # is not read
    assert pairs(read(tmp_path / "e.npz")) == [(1, 2)]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"delimiter": ""}, "one character"),
        ({"delimiter": "::"}, "one character"),
        ({"encoding": "foo"}, "no encoding named 'foo'"),
        ({"encoding": "utf-16"}, "convert the file"),
        ({"encoding": "utf-7"}, "convert the file"),
        ({"encoding": "idna"}, "convert the file"),
        ({"encoding": "unicode_escape"}, "convert the file"),
        ({"encoding": "iso2022_jp"}, "convert the file"),
        ({"encoding": "utf\0"}, "convert the file"),
        ({"encoding": "rot13"}, "no encoding named"),
        ({"delimiter": "é"}, "ASCII"),
        ({"delimiter": '"'}, "ASCII"),
        ({"delimiter": "\n"}, "ASCII"),
    ],
)
def test_invalid_text_options_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        TextOptions(**options)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (pa.array([1, None, 200], pa.uint8()), [1, -1, 200]),
        (pa.array([True, False, None]), [1, 0, -1]),
        (pa.array([Decimal("1.5"), None, Decimal("2.0")]), [1.5, None, 2.0]),
        (pa.array(["inf", "1", "2"]), [np.inf, 1, 2]),
    ],
)
def test_labels_of_all_types_are_kept(labels: pa.Array, expected: list[Any]) -> None:
    nodes = NodeTable(source=pa.table({"id": [1, 2, 3], "y": labels}), id="id", label="y")
    graph = read({"s": [1, 2], "d": [2, 3], "t": [0, 0]}, nodes=nodes)
    assert graph[0].y is not None
    np.testing.assert_array_equal(graph[0].y, [np.nan if value is None else value for value in expected])


def test_tables_that_disagree_about_a_label_are_refused() -> None:
    tables = [pa.table({"id": [1], "y": [1]}), pa.table({"id": [2], "y": [2.7]})]
    with pytest.raises(InputError, match="column 'label' is DOUBLE, in the tables before it BIGINT"):
        read({"s": [1], "d": [2], "t": [0]}, nodes=NodeTable(source=tables, id="id", label="y"))


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({"s": [1, 2], "d": [1], "t": [1]}, "do not make a table"),
        ({"s": np.ones((2, 2)), "d": [1, 2], "t": [1, 2]}, "do not make a table"),
        ([], "no source"),
        (pa.table([[1], [2], [3]], names=["s", "s", "t"]), "two columns named 's'"),
    ],
)
def test_sources_that_are_no_tables_are_refused(source: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        read(source)


def test_the_last_weight_is_that_of_the_latest_snapshot_also_without_times() -> None:
    table = {"s": [1, 1], "d": [2, 2], "w": [9, 5], "day": [1, 2]}
    options: dict[str, Any] = {"time": None, "weight": "w", "clock": ByColumn("day"), "repeated": "last", "life": 2}
    weight = read(table, **options)[1].weight
    assert np.asarray(weight).tolist() == [5]


def test_node_rows_after_the_last_snapshot_do_not_reach_back_into_it() -> None:
    nodes = NodeTable(
        source={"id": [1, 2, 1, 3], "at": [0, 0, 25, 30], "x": [1, 1, 99, 99]}, id="id", time="at", features=["x"]
    )
    graph = read({"s": [1, 2], "d": [2, 1], "t": [0, 19]}, clock=Every(10), nodes=nodes)
    assert graph[1].nodes.tolist() == [0, 1]
    assert np.asarray(graph[1].x).tolist() == [[1], [1]]


def read_times(times: Any, source: str, folder: Path, **options: Any) -> Any:
    table: Any = {"s": np.array([1, 2]), "d": np.array([2, 3]), "t": times}
    if source == "npz":
        np.savez(folder / "e.npz", **table)
        table = folder / "e.npz"
    elif source == "arrow":
        table = pa.table(table)
    return read(table, **({"clock": Every(1)} | options))


@pytest.mark.parametrize("source", ["npz", "mapping", "arrow"])
def test_numbers_of_every_type_are_read(source: str, tmp_path: Path) -> None:
    for dtype in ("f2",) if source == "arrow" else (">i8", ">i2", "f2", ">f2", ">f4", "g", "u8", "?"):
        assert read_times(np.array([0, 1], dtype), source, tmp_path).times == (0, 1), dtype


@pytest.mark.parametrize(
    ("unit", "source"),
    [*product(["Y", "W", "h", "ms", "ps", "as"], ["npz"]), *product(["M", "D", "s", "ns", "fs", "25s"], ["mapping"])],
)
def test_dates_of_every_unit_are_read(unit: str, source: str, tmp_path: Path) -> None:
    graph = read_times(np.array([0, 1], f"M8[{unit}]"), source, tmp_path, clock=Calendar("year"))
    assert graph.times[0] == "1970"
    assert graph.info["rows"] == 2


@pytest.mark.parametrize("source", ["npz", "mapping"])
@pytest.mark.parametrize(("first", "dtype"), [(2**62, "M8[Y]"), (10**6, "M8[Y]"), ("NaT", "M8")])
def test_dates_that_no_calendar_holds_are_refused(first: Any, dtype: str, source: str, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        read_times(np.array([first, "NaT"], dtype), source, tmp_path)


@pytest.mark.parametrize("column", [pa.array([[1], [2]]), pa.array([{"a": 1}, None]), pa.array([b"1", b"2"])])
def test_a_column_that_is_no_time_is_refused(column: pa.Array) -> None:
    with pytest.raises(InputError):
        read(pa.table({"s": [1, 2], "d": [2, 3], "t": column}))
