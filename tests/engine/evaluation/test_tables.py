from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from strobe.engine.evaluation.tables import NODE, PAIR, find_nodes, read_node_rows, time_of
from strobe.errors import BadRowsError, InputError, OptionError, UnknownNameError
from strobe.graph import DynamicGraph, Edges, GraphBuilder, NodeNames, from_edges


@pytest.fixture
def named() -> DynamicGraph:
    builder = GraphBuilder(num_nodes=3)
    builder.add(Edges([0, 1], [1, 2]), nodes=[0, 1, 2], time=0)
    return builder.finish(names=NodeNames.from_names(["anna", "bob", "ö"]))


@pytest.fixture
def unnamed() -> DynamicGraph:
    return from_edges([np.array([[0, 1], [1, 2]])], num_nodes=12)


@pytest.mark.parametrize(
    "text",
    [
        "anna,bob\nö,anna\n",
        "source,destination\r\nanna,bob\r\nö,anna\r\n",
        "rank,Destination,source\n1,bob,anna\n\n2,anna,ö",
        "src,dst\nanna,bob\nö,anna\n",
        "source,source_name,destination,destination_name\n9,anna,9,bob\n9,ö,9,anna\n",  # a table of predictions
    ],
)
def test_pairs_are_read_with_and_without_a_header(named: DynamicGraph, tmp_path: Path, text: str) -> None:
    (tmp_path / "pairs.csv").write_text(text, encoding="utf-8", newline="")
    assert read_node_rows(named, tmp_path / "pairs.csv", PAIR).nodes.tolist() == [[0, 2], [1, 0]]


def test_parquet_has_columns_by_name(unnamed: DynamicGraph, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"destination": [1, 2], "source": [11, 0]}), tmp_path / "pairs.parquet")
    assert read_node_rows(unnamed, tmp_path / "pairs.parquet", PAIR).nodes.tolist() == [[11, 0], [1, 2]]
    with pytest.raises(UnknownNameError, match="'node'"):
        read_node_rows(unnamed, tmp_path / "pairs.parquet", NODE)


def test_a_header_that_is_not_understood_is_explained(named: DynamicGraph, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("from,to\nanna,bob\n")
    with pytest.raises(BadRowsError, match=r"line 1: .*a header would be source,destination"):
        read_node_rows(named, tmp_path / "pairs.csv", PAIR)


def test_bad_rows_are_reported_with_file_line_and_reason(named: DynamicGraph, tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("source,destination\nanna,bob\nanna,bo\nanna\n\nbob,bob\n,ö\n", encoding="utf-8")
    with pytest.raises(BadRowsError) as caught:
        read_node_rows(named, path, PAIR)
    message = str(caught.value)
    assert message.startswith("4 bad rows")
    assert f"{path}, line 3: column 'destination': 'bo' is no node" in message
    assert "did you mean 'bob'" in message
    assert f"{path}, line 4: 1 of 2 columns" in message
    assert f"{path}, line 6: a node is paired with itself" in message
    assert f"{path}, line 7: column 'source'" in message
    kept = read_node_rows(named, path, PAIR, skip_bad_rows=True)
    assert kept.nodes.tolist() == [[0], [1]]
    assert len(kept.bad) == 4


def test_ids_beyond_the_graph_and_empty_files_are_refused(unnamed: DynamicGraph, tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text("node\n12\n-1\nx\n")
    with pytest.raises(BadRowsError, match="3 bad rows"):
        read_node_rows(unnamed, path, NODE, skip_bad_rows=True)
    path.write_text("node\n")
    with pytest.raises(InputError, match="no rows"):
        read_node_rows(unnamed, path, NODE)
    with pytest.raises(InputError, match="cannot be read"):
        read_node_rows(unnamed, tmp_path / "none.csv", NODE)
    with pytest.raises(OptionError, match="end it in"):
        read_node_rows(unnamed, tmp_path / "nodes.txt", NODE)


def test_nodes_are_found_by_name_or_id(named: DynamicGraph, unnamed: DynamicGraph) -> None:
    assert find_nodes(named, ["ö", "anna"]) == [2, 0]
    assert find_nodes(unnamed, ["11"]) == [11]
    with pytest.raises(UnknownNameError):
        find_nodes(named, ["1"])
    with pytest.raises(InputError):
        find_nodes(unnamed, ["12"])


@pytest.mark.parametrize(
    ("times", "t", "expected"),
    [
        ([0, 1, 2], 1, 1),
        ([0, 10, 20], 3, 30),
        ([0, 10, 20], 4, 40),
        ([0, 10, 25], 3, None),
        (["2024-01-01", "2024-01-15", "2024-01-29"], 3, "2024-02-12"),
        (["2023-11-01", "2023-12-01", "2024-01-01"], 3, "2024-02-01"),
        (["2023-11", "2023-12", "2024-01"], 4, "2024-03"),
        (["2024-01-01T22:00:00", "2024-01-01T23:00:00"], 2, "2024-01-02T00:00:00"),
        (["2024-01-01", "2024-01-15", "2024-03-29"], 3, None),
        (["first", "second"], 2, None),
        ([3], 1, None),
    ],
)
def test_time_of_a_later_snapshot_continues_equal_steps(times: list[int | str], t: int, expected: int | str) -> None:
    graph = from_edges([np.array([[0], [1]])] * len(times), num_nodes=2, times=times)
    assert time_of(graph, t) == expected
