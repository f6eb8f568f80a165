"""Text files: delimiters, headers, and rows with their lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from strobe.graph.ingest import text


@pytest.mark.parametrize(
    ("content", "delimiter", "columns"),
    [
        ("a,b,c\n1,2,3\n", ",", ["a", "b", "c"]),
        ("a;b\n1,5;2,5\n", ";", ["a", "b"]),
        ("a\tb c\n1\t2 3\n", "\t", ["a", "b c"]),
        ("a b  c\n1 2  3\n", " ", ["a", "b", "c"]),
        ("a|b\n1|2\n", "|", ["a", "b"]),
        ('"x,y";"z"\n"1,2";"3"\n', ";", ["x,y", "z"]),
        ("a,b\n1,2\n1,2,3\n1,2\n", ",", ["a", "b"]),
        ("alone\n1\n", " ", ["alone"]),
    ],
)
def test_the_delimiter_is_found(tmp_path: Path, content: str, delimiter: str, columns: list[str]) -> None:
    path = tmp_path / "f.txt"
    path.write_text(content)
    layout = text.sniff(path, delimiter=None, header=True, encoding="utf-8")
    assert (layout.delimiter, layout.columns, layout.skip) == (delimiter, columns, 1)


def test_rows_know_their_lines_and_bad_ones_their_reasons(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_bytes(b'a,b\n1,2\n\n"x\ny",3\n# no\n4\n5,\xff\n6,7')
    layout = text.sniff(path, delimiter=",", header=True, encoding="utf-8")
    rows = list(text.read_rows(path, layout, "utf-8"))
    assert [(row.line, row.fields) for row in rows] == [
        (2, ["1", "2"]),
        (4, ["x\ny", "3"]),
        (7, None),
        (8, None),
        (9, ["6", "7"]),
    ]
    assert rows[2].reason == "has 1 columns, not 2"
    assert rows[3].reason == "is not utf-8 text"
