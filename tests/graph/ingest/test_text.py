"""Text files: blocks of whole lines, delimiters, headers, and the reader that knows every row's line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.graph.ingest import text
from strobe.graph.ingest.text import Layout


@settings(max_examples=60, deadline=None)
@given(
    content=st.text(alphabet="a1,\n\r", max_size=80).map(str.encode),
    size=st.integers(1, 20),
    packed=st.booleans(),
)
def test_blocks_hold_every_byte_and_end_with_a_line(
    content: bytes, size: int, packed: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("blocks") / ("f.txt.gz" if packed else "f.txt")
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_BLOCK_BYTES", size)
        found = [(bytes(block.data), block.num_lines) for block in text.blocks(path, Layout(",", ["a"], 0))]
    assert b"".join(data for data, _ in found) == content
    assert all(data.endswith(b"\n") for data, _ in found[:-1])
    assert all(lines == len(data.split(b"\n")) - data.endswith(b"\n") for data, lines in found)


def test_blocks_begin_after_the_header(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_bytes(b"# comment\na,b\n1,2\n3,4")
    assert [bytes(block.data) for block in text.blocks(path, Layout(",", ["a", "b"], 2))] == [b"1,2\n", b"3,4"]


@pytest.mark.parametrize(
    ("block", "delimiter", "tidy"),
    [
        (b"a,b\nc,d", ",", b"a,b\nc,d\n"),
        (b"\na,b\r\n \n\nc,d\n", ",", b"a,b\nc,d\n"),
        (b"# said\na,b\n#c,d\n% x, y, z\n", ",", b"a,b\n#c,d\n"),
        (b" a  b \nc\td\n", " ", b"a b\nc d\n"),
        (b"\n", ",", b""),
    ],
)
def test_tidied_blocks_hold_rows_only(block: bytes, delimiter: str, tidy: bytes) -> None:
    assert text.tidied(memoryview(block), Layout(delimiter, ["x", "y"], 0)) == tidy


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
    rows = list(text.rows(path, layout, "utf-8"))
    assert [(row.line, row.fields) for row in rows] == [
        (2, ["1", "2"]),
        (4, ["x\ny", "3"]),
        (7, None),
        (8, None),
        (9, ["6", "7"]),
    ]
    assert rows[2].reason == "has 1 columns, not 2"
    assert rows[3].reason == "is not utf-8 text"
