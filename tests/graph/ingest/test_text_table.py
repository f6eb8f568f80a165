"""Blocks of whole lines: nothing is lost between them, and Arrow gets only what it reads by our rules."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.graph.ingest import Every, ingest
from strobe.graph.ingest.text import Layout
from strobe.graph.ingest.text_table import TextBlock, read_blocks


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
    found = [(block.data, block.num_lines) for block in read_blocks(path, Layout(",", ["a"], 0), block_bytes=size)]
    assert b"".join(data for data, _ in found) == content
    assert all(data.endswith(b"\n") for data, _ in found[:-1])
    assert all(lines == len(data.split(b"\n")) - data.endswith(b"\n") for data, lines in found)


def test_blocks_begin_after_the_header(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_bytes(b"# comment\na,b\n1,2\n3,4")
    assert [block.data for block in read_blocks(path, Layout(",", ["a", "b"], 2))] == [b"1,2\n", b"3,4"]


@pytest.mark.parametrize(
    ("block", "delimiter", "tidy"),
    [
        (b"a,b\nc,d", ",", b"a,b\nc,d\n"),
        (b"\na,b\r\n \n\nc,d\n", ",", b"a,b\nc,d\n"),
        (b"# said\na,b\n#c,d\n% x, y, z\n", ",", b"a,b\n#c,d\n"),
        (b"a,b\n#,d\n# c,d\n", ",", b"a,b\n#,d\n# c,d\n"),
        (b" a  b \nc\td\n", " ", b"a b\nc d\n"),
        (b"\n", ",", b""),
    ],
)
def test_tidied_blocks_hold_rows_only(block: bytes, delimiter: str, tidy: bytes) -> None:
    assert TextBlock(block).tidy(Layout(delimiter, ["x", "y"], 0)).data == tidy


def test_arrow_gets_no_block_that_begins_with_a_byte_order_mark() -> None:
    """Not even one that begins with it only because a comment was taken out: Arrow would take out the mark, too."""
    layout = Layout(",", ["x", "y"], 0)
    block = TextBlock(b"# note\n\xef\xbb\xbf1,2\n")
    assert block.is_tidy(layout)
    assert not block.tidy(layout).is_tidy(layout)


def test_a_byte_order_mark_within_a_file_is_a_part_of_its_field(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_bytes(b"1,2,3\n# note\n\xef\xbb\xbf5,1,4\n")
    graph = ingest(path, src=0, dst=1, time=2, clock=Every(1), ids="string")
    assert graph.names is not None
    assert "\ufeff5" in [graph.names[node] for node in range(graph.num_nodes)]
