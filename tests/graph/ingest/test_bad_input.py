"""Bad input: each kind gives a clear error with its place, and nothing is written."""

from __future__ import annotations

import csv
import gzip
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strobe.errors import BadRowsError, FormatError, InputError, OptionError, StrobeError
from strobe.graph import open_graph
from strobe.graph.build import WeightOverflowError
from strobe.graph.ingest import Every, NodeTable, ingest
from strobe.graph.ingest.text_table import TextOptions

HEADER = "src,dst,time,weight\n"
GOOD = "1,2,10,0.5\n"


def read(path: Path, **options: Any) -> Any:
    usual: dict[str, Any] = {"src": "src", "dst": "dst", "time": "time", "weight": "weight", "clock": Every(5)}
    return ingest(path, **(usual | {"out": path.parent / "graph"} | options))


def assert_nothing_written(folder: Path, *inputs: str) -> None:
    assert sorted(path.name for path in folder.iterdir()) == sorted(inputs)


@pytest.mark.parametrize(
    ("row", "column", "reason"),
    [
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
    ],
)
def test_a_bad_row_is_named_by_file_line_column_and_reason(tmp_path: Path, row: str, column: str, reason: str) -> None:
    path = tmp_path / "events.csv"
    path.write_text(HEADER + GOOD + GOOD + row + "\n" + GOOD)
    with pytest.raises(BadRowsError) as caught:
        read(path)
    text = str(caught.value)
    assert f"{path}, line 4: " in text
    assert not column or f"column '{column}'" in text
    assert reason in text
    assert text.startswith("1 bad row; nothing was written")
    assert_nothing_written(tmp_path, "events.csv")


@pytest.mark.parametrize("number", ["7", " 7", "7 ", "\t7", "+7", "7.", "7e0", "70E-1", "07"])
def test_numbers_may_be_written_in_several_ways_on_both_paths(tmp_path: Path, number: str) -> None:
    path = tmp_path / "events.csv"
    for bad in ("", "x,2,10,0.5\n"):
        path.write_text(HEADER + f"1,2,{number},{number}\n" + bad)
        graph = read(path, skip_bad_rows=True, overwrite=True, ids="integer")
        assert graph.info["first_time"] == 7
        assert graph[0].weight is not None
        assert graph[0].weight.tolist() == [7]


def test_weights_whose_sum_is_no_number_are_refused_with_their_edge(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text(HEADER + "7,8,10,3e38\n7,8,11,3e38\n")
    with pytest.raises(WeightOverflowError) as caught:
        read(path)
    assert (caught.value.t, caught.value.src, caught.value.dst) == (0, 7, 8)
    assert read(path, repeated="last").info["rows"] == 2
    assert_nothing_written(tmp_path, "events.csv", "graph")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("cr.tsv", b"src\tdst\ttime\tweight\r1\t2\t3\t4\r", "carriage return"),
        ("quote.csv", b'"src,dst,time,weight\n1,2,3,4\n', "line 1: the header has a quote"),
        ("latin.csv", "größe,src,dst,time,weight\n0,1,2,3,4\n0,1,2,3,x\n".encode("latin-1"), "not utf-8 text"),
    ],
)
def test_headers_that_cannot_be_read_are_refused(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=reason):
        read(tmp_path / name)


def test_a_first_row_with_a_stray_quote_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text('"1,2,3,4\n' + GOOD + GOOD)
    with pytest.raises(BadRowsError, match=r"1 bad row;(.|\n)*line 1:"):
        read(path, src=0, dst=1, time=2, weight=3)


def test_damage_within_a_parquet_file_is_found_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    numbers = np.random.default_rng(0).integers(0, 99, (5000, 3))
    table = pa.table({name: numbers[:, k] for k, name in enumerate(("src", "dst", "time"))})
    pq.write_table(table, path, compression="zstd")
    data = bytearray(path.read_bytes())
    data[200:260] = bytes(60)
    path.write_bytes(data)
    with pytest.raises(InputError, match="cannot be read"):
        read(path, weight=None)


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


def test_a_file_of_bad_rows_only_makes_no_graph(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text(HEADER + "1,2,soon,1\n")
    with pytest.raises(InputError, match="no event to make a graph of once bad rows are left out"):
        read(path, skip_bad_rows=True)


def test_the_line_of_a_row_after_quoted_line_ends_is_right(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text('src,dst,time\n"a\nb",c,1\nd,e,soon\n')
    with pytest.raises(BadRowsError, match="line 4: column 'time': 'soon'"):
        ingest(path, src="src", dst="dst", time="time", clock=Every(1), time_unit="number")


def test_a_missing_column_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("source,dst,time,weight\n" + GOOD)
    with pytest.raises(InputError, match=r"named 'src'.*did you mean 'source'"):
        read(path)
    with pytest.raises(InputError, match="has 4 columns, there is no column 7"):
        read(path, src=7)


def test_a_wrong_delimiter_is_suspected(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text((HEADER + GOOD).replace(",", ";"))
    with pytest.raises(InputError, match="read as one column: is ',' its delimiter"):
        read(path, text=TextOptions(delimiter=","))
    assert read(path).info["rows"] == 1


def test_a_duplicate_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("src,dst,time,src\n1,2,3,4\n")
    with pytest.raises(InputError, match="line 1: the header names column 'src' twice"):
        read(path)


@pytest.mark.parametrize(
    ("content", "reason"), [("", "is empty"), ("\n\n", "no row"), ("# only\n% comments\n", "no row")]
)
def test_an_empty_file_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "events.csv"
    path.write_text(content)
    with pytest.raises(InputError, match=reason):
        read(path)
    assert_nothing_written(tmp_path, "events.csv")


def test_a_header_without_rows_makes_no_graph(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text(HEADER)
    with pytest.raises(InputError, match="no event"):
        read(path)
    assert_nothing_written(tmp_path, "events.csv")


@pytest.mark.parametrize("keep", [0.5, 0.999])
def test_a_truncated_gz_is_refused(tmp_path: Path, keep: float) -> None:
    path = tmp_path / "events.csv.gz"
    rng = np.random.default_rng(0)
    whole = gzip.compress((HEADER + "".join(f"{a},{b},1,1\n" for a, b in rng.integers(0, 9999, (5000, 2)))).encode())
    path.write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(InputError, match="truncated or damaged"):
        read(path)
    assert_nothing_written(tmp_path, "events.csv.gz")


def test_file_that_is_not_gzip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "events.csv.gz"
    path.write_text(HEADER + GOOD)
    with pytest.raises(InputError, match="cannot be unpacked"):
        read(path)


def test_mixed_encodings_are_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_bytes("src,dst,time,weight\nZoë,b,1,1\n".encode() + "José,b,1,1\n".encode("latin-1"))
    with pytest.raises(BadRowsError, match="line 3: is not utf-8 text"):
        read(path)


def test_binary_rubbish_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_bytes(HEADER.encode() + os.urandom(2000))
    with pytest.raises(StrobeError):
        read(path)
    assert_nothing_written(tmp_path, "events.csv")


def test_an_open_quote_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text(HEADER + GOOD + '"1,2,10,0.5\n' + GOOD)
    with pytest.raises(BadRowsError, match="line 3"):
        read(path)


def test_a_header_read_as_a_row_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text(HEADER + GOOD)
    with pytest.raises(BadRowsError, match="line 1: column '#0': 'src' is not an integer"):
        read(path, src=0, dst=1, time=2, weight=3, time_unit="number")


def test_no_row_is_lost_where_line_ends_are_mixed(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_bytes(b"src,dst,time,weight\r\n1,2,3,1\n4,5,6,1\r\n\n7,8,9,1")
    assert read(path).info["rows"] == 3


def test_paths_that_are_no_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file"):
        read(tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match="is a directory"):
        read(tmp_path)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match="cannot be read as a Parquet file"):
        read(tmp_path / "bad.parquet")
    (tmp_path / "bad.npz").write_bytes(b"PK no")
    with pytest.raises(InputError, match="cannot be read as an NPZ file"):
        read(tmp_path / "bad.npz")
    with pytest.raises(InputError, match="cannot read rows from int"):
        ingest(7, src=0, dst=1, time=2, clock=Every(1))


def test_bad_rows_of_parquet_are_named_by_row(tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    table = {"src": [1, None, 3], "dst": [1, 2, -3], "time": [1.0, 2.0, float("nan")], "weight": [1.0, 1.0, 1.0]}
    pq.write_table(pa.table(table), path)
    with pytest.raises(BadRowsError) as caught:
        read(path)
    assert "row 2: column 'src': '' is empty" in str(caught.value)
    assert "row 3: column 'dst': '-3' is negative" in str(caught.value)


def test_bad_rows_of_a_database_are_named_by_row_also_where_types_mix(tmp_path: Path) -> None:
    con = sqlite3.connect(":memory:")
    con.execute("CREATE TABLE e (src, dst, time, weight)")
    con.executemany("INSERT INTO e VALUES (?, ?, ?, ?)", [(1, 2, 3, 0.5), (1, "two", 3, 0.5)])
    with pytest.raises(BadRowsError, match="the query, row 2: column 'dst': 'two' is not an integer"):
        read_cursor(con.execute("SELECT * FROM e ORDER BY rowid"), tmp_path, ids="integer")


def read_cursor(cursor: Any, folder: Path, **options: Any) -> Any:
    return ingest(
        cursor, src="src", dst="dst", time="time", weight="weight", clock=Every(5), out=folder / "graph", **options
    )


def test_existing_graph_needs_overwrite(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text(HEADER + GOOD)
    read(path)
    with pytest.raises(OptionError, match="already holds a graph"):
        read(path)
    assert read(path, overwrite=True).info["rows"] == 1


def test_an_existing_graph_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text(HEADER + GOOD)
    read(path)
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
    program = f"""
import os, signal
from strobe.graph.ingest import Every, ingest
def stop(stage, done, total):
    if stage == "writing snapshots" and done == 1:
        os.kill(os.getpid(), signal.SIGKILL)
ingest({str(path)!r}, src="src", dst="dst", time="time", clock=Every(5), out={str(tmp_path / "graph")!r}, on_stage=stop)
"""
    killed = subprocess.run([sys.executable, "-c", program])
    assert killed.returncode == -signal.SIGKILL
    with pytest.raises(FormatError):
        open_graph(tmp_path / "graph")
    assert len(list(tmp_path.iterdir())) > 1, "the writer was killed before it wrote anything"
    assert read(path).info["rows"] == 2
    assert_nothing_written(tmp_path, "events.csv", "graph")


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_reading_ends_ingest(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    rng = np.random.default_rng(0)
    path.write_text(HEADER + "".join(f"{a},{b},{c},1\n" for a, b, c in rng.integers(0, 9999, (400_000, 3))))
    program = f"""
import _thread, threading
from strobe.graph.ingest import Every, ingest, text_table
parse = text_table.TextTable._parse
def interrupted(*args):
    threading.Timer(0, _thread.interrupt_main).start()
    return parse(*args)
text_table.TextTable._parse = interrupted
ingest({str(path)!r}, src="src", dst="dst", time="time", clock=Every(5), out={str(tmp_path / "graph")!r})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.strip().endswith("KeyboardInterrupt")
    assert_nothing_written(tmp_path, "events.csv")


def test_bad_rows_of_a_node_table_are_named_too(tmp_path: Path) -> None:
    path, nodes = tmp_path / "events.csv", tmp_path / "nodes.csv"
    path.write_text(HEADER + GOOD)
    nodes.write_text("id,age\n1,30\n2,old\n")
    with pytest.raises(BadRowsError, match=r"nodes\.csv, line 3: column 'age': 'old' is not a number"):
        read(path, nodes=NodeTable(source=nodes, id="id", features=["age"]))
