"""The rules of text tables: rows, comments and quotes, the same in every way of reading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from strobe.errors import BadRowsError
from strobe.graph import DynamicGraph
from strobe.graph.ingest import Into, ingest
from strobe.graph.ingest.records import MAX_LINES, Line, RowReader

FOUR = ["a,x,1", "%,x,2", "#,y,3", "b,x,4"]


def read(path: Path, lines: list[str], **options: Any) -> DynamicGraph:
    path.write_text("\n".join(lines) + "\n")
    usual: dict[str, Any] = {"src": 0, "dst": 1, "time": 2, "clock": Into(1), "time_unit": "number", "repeated": "keep"}
    return ingest(path, **(usual | options))


def rows(lines: list[str], width: int | None = 2) -> RowReader:
    return RowReader([Line(line, "\n") for line in lines], ",", width, "utf-8")


@pytest.mark.parametrize("also", [[], [""], ["c,x,soon"], ['"c",x,5'], ["# a note"], ['# a "note"'], ["c,x,5\r"]])
def test_a_row_with_the_right_number_of_columns_is_a_row_whatever_it_begins_with(
    tmp_path: Path, also: list[str]
) -> None:
    graph = read(tmp_path / "f.csv", FOUR + also, skip_bad_rows=True, rejects=tmp_path / "bad.csv")
    good = [line for line in also if line.endswith(("5", "5\r"))]
    assert graph.info["rows"] == 4 + len(good)
    assert graph.info["comment_lines"] == sum(line.startswith("#") for line in also)
    assert graph.info["bad_rows"] == sum(line.endswith("soon") for line in also)
    assert {FOUR[k][0] for k in range(4)} <= set(graph.names or ())


def test_a_quoted_first_field_is_no_comment(tmp_path: Path) -> None:
    lines = ["a,x,1", '"# c",y,2', '"% d"', "", "# e"]
    graph = read(tmp_path / "f.csv", lines, skip_bad_rows=True, rejects=tmp_path / "bad.csv")
    assert (graph.info["rows"], graph.info["bad_rows"], graph.info["comment_lines"]) == (2, 1, 1)
    assert "# c" in (graph.names or ())


def test_comments_before_the_first_row_are_counted_however_many_there_are(tmp_path: Path) -> None:
    graph = read(tmp_path / "f.csv", ["# x,y,1"] * 60 + ["", "a,x,1"])
    assert (graph.info["rows"], graph.info["comment_lines"]) == (1, 60)


@pytest.mark.parametrize("stray", ['"a,x,1', 'a,"x,1', 'a,x,"1', '"a"b,x,1'])
def test_a_stray_quote_costs_its_own_line_only(tmp_path: Path, stray: str) -> None:
    lines = [f"n{k},m{k},{k}" for k in range(1999)]
    lines[51] = stray
    graph = read(tmp_path / "f.csv", lines, skip_bad_rows=True, rejects=tmp_path / "bad.csv")
    assert (graph.info["rows"], graph.info["bad_rows"]) == (1998, 1)
    assert ",52," in (tmp_path / "bad.csv").read_text()


def test_every_stray_quote_costs_its_own_line_only(tmp_path: Path) -> None:
    lines = [f"n{k},m{k},{k}" for k in range(4000)]
    lines[::7] = [f'"{line}' for line in lines[::7]]
    graph = read(tmp_path / "f.csv", lines, skip_bad_rows=True, rejects=tmp_path / "bad.csv")
    bad = len(lines[::7])
    assert (graph.info["rows"], graph.info["bad_rows"]) == (4000 - bad, bad)


def test_a_quoted_field_may_hold_line_ends_up_to_a_limit() -> None:
    within, beyond = MAX_LINES - 2, MAX_LINES - 1
    [row] = rows(['"a', *["x"] * within, '",b'])
    assert (row.line, row.fields) == (1, ["a\n" + "x\n" * within, "b"])
    found = list(rows(['"a', *["x,y"] * beyond, '",b']))
    assert found[0].fields is None
    assert [row.fields for row in found[1:]] == [["x", "y"]] * beyond + [None]
    assert [row.line for row in found] == list(range(1, MAX_LINES + 2))


def test_a_quoted_field_spans_lines_only_in_a_row_of_the_right_width() -> None:
    found = list(rows(['"a,1', "b,2", 'c",3,4', "d,5"]))
    assert [(row.line, row.fields) for row in found] == [(1, None), (2, ["b", "2"]), (3, None), (4, ["d", "5"])]


def test_stray_quotes_are_not_scanned_again_and_again() -> None:
    scanned = 0

    def lines() -> Any:
        for k in range(20_000):
            yield Line('x",b,"' if k % 2 else '"a,b', "\n")

    class Counting(RowReader):
        def _next_line(self) -> Line | None:
            nonlocal scanned
            scanned += len(self._ahead)
            return super()._next_line()

    assert len(list(Counting(lines(), ",", 3, "utf-8"))) > 5_000
    assert scanned < 5 * 20_000


@pytest.mark.parametrize(
    ("lines", "undecided"),
    [(["a,b"], None), (["a,b", '"c', "d"], 2), (["a,b", '"c', 'd",e'], None), (['"c', '"d"x,e'], None)],
)
def test_a_row_that_later_lines_may_complete_is_undecided(lines: list[str], undecided: int | None) -> None:
    reader = rows(lines)
    assert list(reader)
    assert reader.undecided == undecided


def test_a_carriage_return_within_a_line_is_a_bad_row(tmp_path: Path) -> None:
    with pytest.raises(BadRowsError, match="line 2: holds a carriage return"):
        read(tmp_path / "f.csv", ["a,x,1", "b,x,2\rc,x,3", ""])
