"""An index that leads outside of its array is found when a graph is opened, whatever its checksums say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from strobe.errors import FormatError
from strobe.graph import GrowingGraph, NodeNames, from_edges, open_graph
from strobe.graph.build import Edges
from strobe.graph.disk.directory import open_arrays
from strobe.graph.disk.metadata import read_metadata
from strobe.graph.disk.verification import check_contents
from tests.support.forged import forge_array, forge_value
from tests.support.graphs import full_graph

FAR = 1 << 30


@pytest.fixture
def place(tmp_path: Path) -> Path:
    full_graph().save(tmp_path / "graph")
    return tmp_path / "graph"


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [
        *(("col", 0, value) for value in (-1, 3, FAR)),
        *(("node", at, value) for at in (0, 2) for value in (-1, 1, FAR)),
        *(("row_ptr", at, value) for at, value in ((0, -1), (0, 1), (1, -1), (1, FAR), (3, 1), (3, 3))),
        *((name, at, value) for name in ("cell_ptr", "arc_ptr") for at in (0, 1, 2) for value in (-1, FAR)),
        *(("edge_count", 0, value) for value in (-1, 1, FAR)),
        *(("weight", 1, value) for value in (np.nan, np.inf)),
        *(("name_ptr", at, value) for at in (0, 1, 4) for value in (-1, 5, FAR)),
        ("name_text", 0, 0xFF),
        ("name_text", 0, ord("z")),
    ],
)
def test_a_forged_index_is_refused(name: str, at: int, value: float, place: Path) -> None:
    assert np.load(place / f"{name}.npy").flat[at] != value
    forge_value(place, name, at, value)
    with pytest.raises(FormatError, match="is no valid graph"):
        open_graph(place)


def test_columns_that_descend_within_a_row_are_refused(tmp_path: Path) -> None:
    from_edges([[[0, 1], [2, 2]]]).save(tmp_path / "graph")
    forge_array(tmp_path / "graph", "col", np.array([1, 0], np.int32))
    with pytest.raises(FormatError, match="col has"):
        open_graph(tmp_path / "graph")


@pytest.mark.parametrize(("name", "values"), [("col", [0, 0]), ("weight", [1.0, 2.0])])
def test_an_undirected_edge_without_its_reverse_is_refused(name: str, values: list[float], tmp_path: Path) -> None:
    graph = from_edges([[[0], [1]]], weights=[[1.0]], directed=False)
    graph.save(tmp_path / "graph")
    stored = np.load(tmp_path / "graph" / f"{name}.npy")
    forge_array(tmp_path / "graph", name, np.array(values, stored.dtype))
    with pytest.raises(FormatError, match="snapshot 0"):
        open_graph(tmp_path / "graph")


def test_names_by_order_are_checked(tmp_path: Path) -> None:
    names = NodeNames.from_names([7, 3, 5, 1], in_any_order=True)
    place = tmp_path / "graph"
    full_graph(names).save(place)
    opened = open_graph(place).names
    assert list(opened or ()) == list(names)
    for order in ([3, 1, 2, 4], [3, 1, 2, -1], [3, 1, 2, 2], [0, 1, 2, 3]):
        forge_array(place, "name_order", np.array(order))
        with pytest.raises(FormatError, match="name_"):
            open_graph(place)


def test_a_character_cut_between_two_names_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "graph"
    full_graph(NodeNames.from_names(["a", "b", "c", "cö"])).save(place)
    forge_array(place, "name_ptr", np.array([0, 1, 2, 5, 6]))
    with pytest.raises(FormatError, match="UTF-8"):
        open_graph(place)


def test_a_forged_index_in_a_part_of_a_growing_graph_is_refused(tmp_path: Path) -> None:
    with GrowingGraph.create(tmp_path / "graph") as growing:
        growing.append(Edges([0, 1], [1, 0]), num_nodes=2)
    forge_value(tmp_path / "graph" / "00000000", "col", 0, FAR)
    with pytest.raises(FormatError, match="col has"):
        open_graph(tmp_path / "graph")[0]
    with pytest.raises(FormatError, match="col has"):
        open_graph(tmp_path / "graph", verify=True)


def test_snapshots_are_checked_by_all_threads_and_every_byte_is_counted(tmp_path: Path) -> None:
    edges = np.random.default_rng(0).integers(0, 50_000, (3, 2, 300_000))
    from_edges(edges, num_nodes=50_000, directed=False).save(tmp_path / "graph")
    meta = read_metadata(tmp_path / "graph")
    arrays = open_arrays(tmp_path / "graph", meta)
    seen: list[int] = []
    check_contents(tmp_path / "graph", meta, arrays, seen.append)
    assert sum(seen) == sum(array.nbytes for array in arrays.values())
    forge_value(tmp_path / "graph", "col", -1, 50_000)
    with pytest.raises(FormatError, match="snapshot 2: col has"):
        open_graph(tmp_path / "graph")
