"""Bad input: each kind gives a clear error with its place, and nothing is written."""

from __future__ import annotations

import _thread
import csv
import gzip
import io
import os
import signal
import sqlite3
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strobe.errors import BadRowsError, FormatError, InputError, OptionError, StrobeError
from strobe.graph import open_graph
from strobe.graph.build import WeightOverflowError
from strobe.graph.ingest import Calendar, Every, NodeTable, ingest
from strobe.graph.ingest.text_table import TextOptions, TextTable
from tests.support.kills import forked

HEADER = "src,dst,time,weight\n"
GOOD = "1,2,10,0.5\n"


def read(path: Path, **options: Any) -> Any:
    usual: dict[str, Any] = {"src": "src", "dst": "dst", "time": "time", "weight": "weight", "clock": Every(5)}
    return ingest(path, **(usual | {"out": path.parent / "graph"} | options))


def assert_nothing_written(folder: Path, *inputs: str) -> None:
    assert sorted(path.name for path in folder.iterdir()) == sorted(inputs)


BAD_ROWS = [
    ("x,2,10,0.5", "src", "'x' is not an integer"),
    ("1.5,2,10,0.5", "src", "'1.5' is not an integer"),
    ("1e3,2,10,0.5", "src", "'1e3' is not an integer"),
    ("1_0,2,10,0.5", "src", "'1_0' is not an integer"),
    (",2,10,0.5", "src", "is empty"),
    ("1,-2,10,0.5", "dst", "'-2' is negative"),
    ("1,99999999999999999999,10,0.5", "dst", "does not fit into 64 bits"),
    ("1,2,nan,0.5", "time", "'nan' is not a finite number"),
    ("1,2,inf,0.5", "time", "'inf' is not a finite number"),
    ("1,2,soon,0.5", "time", "'soon' is not a number"),
    ("1,2,,0.5", "time", "is empty"),
    ("1,2,1e300,0.5", "time", "is too large"),
    ("1,2,10,heavy", "weight", "'heavy' is not a number"),
    ("1,2,10,1_0", "weight", "'1_0' is not a number"),
    ("1,2,10,0x10", "weight", "'0x10' is not a number"),
    ("1,2,10,١", "weight", "'١' is not a number"),
    ("1,2,1_0,1", "time", "'1_0' is not a number"),
    ("0x10,2,10,1", "src", "'0x10' is not an integer"),
    ("0b1,2,10,1", "src", "'0b1' is not an integer"),
    ("١,2,10,1", "src", "is not an integer"),
    ("1,2,10,nan", "weight", "'nan' is not a finite number"),
    ("1,2,10,1e300", "weight", "is not a finite number"),
    ("1,2,10,", "weight", "is empty"),
    ("1,2,10", "", "has 3 columns, not 4"),
    ("1,2,10,0.5,7", "", "has 5 columns, not 4"),
]


def test_bad_rows_are_named_by_file_line_column_and_reason(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    for start in range(0, len(BAD_ROWS), 9):  # an error shows the first ten
        some = BAD_ROWS[start : start + 9]
        path.write_text(HEADER + GOOD + "".join(f"{row}\n" for row, _, _ in some) + GOOD)
        with pytest.raises(BadRowsError) as caught:
            read(path, ids="integer", time_unit="number")
        assert str(caught.value).startswith(f"{len(some)} bad rows; nothing was written")
        for number, (row, column, reason) in enumerate(some, 3):
            (line,) = (each for each in str(caught.value).splitlines() if f"{path}, line {number}: " in each)
            assert reason in line, row
            assert not column or f"column '{column}'" in line
    assert_nothing_written(tmp_path, "events.csv")


def test_numbers_may_be_written_in_several_ways_on_both_paths(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    rows = [f"{k},99,{n},{n}\n" for k, n in enumerate(("7", " 7", "7 ", "\t7", "+7", "7.", "7e0", "70E-1", "07"))]
    for bad in ("", "x,2,10,0.5\n"):
        path.write_text(HEADER + "".join(rows) + bad)
        graph = read(path, skip_bad_rows=True, overwrite=True, ids="integer")
        assert (graph.info["first_time"], graph.info["last_time"]) == (7, 7)
        assert np.asarray(graph[0].weight).tolist() == [7] * len(rows)


def test_weights_whose_sum_is_no_number_are_refused_with_their_edge(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text(HEADER + "7,8,10,3e38\n7,8,11,3e38\n")
    with pytest.raises(WeightOverflowError) as caught:
        read(path)
    assert (caught.value.t, caught.value.src, caught.value.dst) == (0, 7, 8)
    assert read(path, repeated="last").info["rows"] == 2
    assert_nothing_written(tmp_path, "events.csv", "graph")


def damaged_parquet() -> bytes:
    numbers = np.random.default_rng(0).integers(0, 99, (5000, 4))
    table = pa.table({name: numbers[:, k] for k, name in enumerate(("src", "dst", "time", "weight"))})
    held = io.BytesIO()
    pq.write_table(table, held, compression="zstd")
    return held.getvalue()[:200] + bytes(60) + held.getvalue()[260:]


PACKED = gzip.compress((HEADER + "".join(f"{k},{k * k % 9999},1,1\n" for k in range(5000))).encode())
POSITIONS = {"src": 0, "dst": 1, "time": 2, "weight": 3, "time_unit": "number"}


@pytest.mark.parametrize(
    ("name", "content", "options", "reason"),
    [
        ("cr.tsv", b"src\tdst\ttime\tweight\r1\t2\t3\t4\r", {}, "carriage return"),
        ("quote.csv", b'"src,dst,time,weight\n1,2,3,4\n', {}, "line 1: the header has a quote"),
        ("latin.csv", "größe,src,dst,time,weight\n0,1,2,3,4\n".encode("latin-1"), {}, "not utf-8"),
        ("mixed.csv", f"{HEADER}Zoë,b,1,1\n".encode() + b"Jos\xe9,b,1,1\n", {}, "line 3: is not utf-8"),
        ("twice.csv", b"src,dst,time,src\n1,2,3,4\n", {}, "line 1: .*'src' twice"),
        ("other.csv", b"source,dst,time,weight\n1,2,3,4\n", {}, "did you mean 'source'"),
        ("few.csv", b"source,dst,time,weight\n1,2,3,4\n", {"src": 7}, "no column 7"),
        ("semi.csv", b"src;dst;time;weight\n1;2;3;4\n", {"text": TextOptions(delimiter=",")}, "one column"),
        ("first.csv", b'"1,2,3,4\n1,2,3,4\n1,2,3,4\n', POSITIONS, r"1 bad row;(.|\n)*line 1:"),
        ("header.csv", (HEADER + GOOD).encode(), POSITIONS, "line 1: column '#0': 'src'"),
        ("open.csv", (HEADER + GOOD + '"1,2,10,0.5\n' + GOOD).encode(), {}, "line 3"),
        ("spans.csv", b'src,dst,time,weight\n"a\nb",c,1,1\nd,e,soon,1\n', {"time_unit": "number"}, "line 4: .*'soon'"),
        ("empty.csv", b"", {}, "is empty"),
        ("blank.csv", b"\n\n", {}, "no row"),
        ("comments.csv", b"# only\n% comments\n", {}, "no row"),
        ("no_rows.csv", HEADER.encode(), {}, "no event"),
        ("half.csv.gz", PACKED[: len(PACKED) // 2], {}, "truncated or damaged"),
        ("most.csv.gz", PACKED[:-5], {}, "truncated or damaged"),
        ("plain.csv.gz", HEADER.encode(), {}, "cannot be unpacked"),
        ("rubbish.csv", HEADER.encode() + np.random.default_rng(0).bytes(2000), {}, "one column"),
        ("bad.parquet", b"PAR1 no", {}, "as a Parquet file"),
        ("damaged.parquet", damaged_parquet(), {}, "cannot be read"),
        ("bad.npz", b"PK no", {}, "as an NPZ file"),
    ],
)
def test_files_that_cannot_be_read_are_refused_with_the_reason(
    tmp_path: Path, name: str, content: bytes, options: dict[str, Any], reason: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=reason):
        read(tmp_path / name, **options)
    assert_nothing_written(tmp_path, name)


@pytest.mark.parametrize(
    ("source", "reason"), [("nowhere.csv", "there is no file"), (".", "is a directory"), (7, "rows from int")]
)
def test_sources_without_rows_are_refused(tmp_path: Path, source: str | int, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        ingest(tmp_path / source if isinstance(source, str) else source, src=0, dst=1, time=2, clock=Every(1))


def test_a_value_outside_the_statistics_of_its_parquet_file_is_found(tmp_path: Path) -> None:
    path, time = tmp_path / "events.parquet", 1_600_000_777
    table = pa.table({"src": [1, 2, 3], "dst": [2, 3, 1], "time": [1_600_000_000, time, 1_600_000_999]})
    pq.write_table(table, path, compression="none", use_dictionary=False)
    data, value = path.read_bytes(), time.to_bytes(8, "little")
    assert data.count(value) == 1  # neither the least nor the largest, so statistics do not hold it
    path.write_bytes(data.replace(value, (1 << 58).to_bytes(8, "little")))
    with pytest.raises(BadRowsError, match="row 2"):
        read(path, weight=None, time_unit="s", clock=Calendar("day"))


def test_every_bad_row_is_counted_and_the_first_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text(HEADER + "".join(f"{'x' if k % 2 else k},2,10,0.5\n" for k in range(60)))
    with pytest.raises(BadRowsError) as caught:
        read(path, ids="integer")
    assert str(caught.value).startswith("30 bad rows")
    assert "line 3:" in str(caught.value)
    assert "and 20 more" in str(caught.value)


def test_skip_bad_rows_writes_them_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text(HEADER + GOOD + "x,2,10,0.5\n" + "3,4,11,1\n" + "1,2\n" + "5,6,12,nan\n")
    graph = read(path, skip_bad_rows=True, ids="integer")
    assert graph.info["rows"] == 2
    assert graph.info["bad_rows"] == 3
    with (tmp_path / "graph.rejects.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["place"], row["column"]) for row in rows] == [("3", "src"), ("5", ""), ("6", "weight")]
    assert all(row["source"] == str(path) and row["reason"] for row in rows)


def test_bad_rows_of_other_tables_are_named_by_row(tmp_path: Path) -> None:
    path, nodes = tmp_path / "events.parquet", tmp_path / "nodes.csv"
    table = {"src": [1, None, 3], "dst": [1, 2, -3], "time": [1.0, 2.0, float("nan")], "weight": [1.0, 1.0, 1.0]}
    pq.write_table(pa.table(table), path)
    with pytest.raises(BadRowsError, match=r"row 2: column 'src'(.|\n)*row 3: column 'dst': '-3' is negative"):
        read(path)
    con = sqlite3.connect(":memory:")  # where types mix, a column is read as text
    query = con.execute("SELECT 1 AS src, 2 AS dst, 3 AS time UNION ALL SELECT 1, 'two', 3 ORDER BY 2")
    with pytest.raises(BadRowsError, match="the query, row 2: column 'dst': 'two' is not an integer"):
        ingest(query, src="src", dst="dst", time="time", clock=Every(5), ids="integer")
    nodes.write_text("id,age\n1,30\n2,old\n")
    with pytest.raises(BadRowsError, match=r"nodes\.csv, line 3: column 'age': 'old' is not a number"):
        ingest(
            {"src": [1], "dst": [2], "time": [1]},
            src="src",
            dst="dst",
            time="time",
            clock=Every(5),
            nodes=NodeTable(source=nodes, id="id", features=["age"]),
        )


def test_an_existing_graph_is_refused_before_anything_is_read_unless_it_may_be_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_bytes(b"src,dst,time,weight\r\n1,2,3,1\n4,5,6,1\r\n\n7,8,9,1")  # line ends may be mixed
    read(path)
    assert read(path, overwrite=True).info["rows"] == 3
    path.write_text("rubbish")
    with pytest.raises(OptionError, match="already holds a graph"):
        read(path)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    small, path = tmp_path / "small", tmp_path / "events.csv"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], capture_output=True).returncode:
        pytest.skip("mounting a small file system is not permitted here")
    try:
        rng = np.random.default_rng(0)
        path.write_text(HEADER + "".join(f"{a},{b},{c},1\n" for a, b, c in rng.integers(0, 9999, (100_000, 3))))
        with pytest.raises(StrobeError, match="the disk is full"):
            read(path, out=small / "graph", clock=Every(100))
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", small], check=True)


def test_a_killed_ingest_leaves_nothing_that_opens_and_the_next_one_clears_up(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text(HEADER + GOOD + "3,4,20,1\n")

    def stop(stage: str, done: int, total: int | None) -> None:
        if stage == "writing snapshots" and done == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    _, status = os.waitpid(forked(lambda: read(path, on_stage=stop)), 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    with pytest.raises(FormatError):
        open_graph(tmp_path / "graph")
    assert len(list(tmp_path.iterdir())) > 1, "the writer was killed before it wrote anything"
    assert read(path).info["rows"] == 2
    assert_nothing_written(tmp_path, "events.csv", "graph")


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_reading_ends_ingest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.csv"
    rng = np.random.default_rng(0)
    path.write_text(HEADER + "".join(f"{a},{b},{c},1\n" for a, b, c in rng.integers(0, 9999, (400_000, 3))))
    parse = TextTable._parse

    def interrupted(*given: Any) -> Any:
        threading.Timer(0, _thread.interrupt_main).start()
        return parse(*given)

    def work() -> None:
        monkeypatch.setattr(TextTable, "_parse", interrupted)
        with pytest.raises(KeyboardInterrupt):
            read(path)

    assert os.waitpid(forked(work), 0)[1] == 0
    assert_nothing_written(tmp_path, "events.csv")
