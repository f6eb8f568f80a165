from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.errors import InputError, OptionError
from strobe.graph import Degrees, DynamicGraph, PerCell, Standardized, Static, from_edges
from strobe.graph.storage import ArrayStorage
from tests.support.graphs import AWKWARD, PlainGraph, assert_same, dynamic_graphs, shown_arcs

time_slices = st.builds(
    slice, st.none() | st.integers(-5, 5), st.none() | st.integers(-5, 5), st.sampled_from([None, 1, 2, 3])
)
node_sets = st.lists(st.integers(0, 5), max_size=6)


def _views(graph: DynamicGraph) -> list[DynamicGraph]:
    return [graph, graph[1:], graph.subset(range(0, graph.num_nodes, 2))]


@settings(deadline=None, max_examples=80)
@given(dynamic_graphs(), time_slices, time_slices, node_sets, node_sets)
def test_views_of_views_show_their_part_and_number_its_cells_by_time_and_node(
    plain: PlainGraph, key: slice, other: slice, first: list[int], second: list[int]
) -> None:
    first, second = ([v for v in nodes if v < plain.num_nodes] for nodes in (first, second))
    for graph, shown in (
        (plain.build()[key], plain.slice(key)),
        (plain.build()[key][other], plain.slice(key).slice(other)),
        (plain.build().subset(first).subset(second), plain.subset(set(first) & set(second))),
        (plain.build().subset(first)[key], plain.subset(first).slice(key)),
        (plain.build()[key].subset(first), plain.subset(first).slice(key)),
    ):
        assert_same(graph, shown)
        assert [graph.cell(v, t) for t, v in shown.cells()] == list(range(graph.num_cells))
        sizes = [len(shown.present(t)) for t in range(len(shown.snapshots))]
        assert graph.cell_ptr.tolist() == [sum(sizes[:t]) for t in range(len(sizes) + 1)]
        assert graph.cell_ptr.dtype == np.int64


def test_a_cell_that_is_not_there_is_refused_by_name() -> None:
    graph = AWKWARD["a node that leaves and returns"].build()
    assert graph.cell(2, -1) == graph.num_cells - 1
    with pytest.raises(InputError, match="node 1 is not present in snapshot 1"):
        graph.cell(1, 1)
    with pytest.raises(InputError, match="node 1 is not present in snapshot 0"):
        graph[1:].cell(1, 0)
    with pytest.raises(InputError, match="node 99 is not present"):
        graph.cell(99, 0)


@settings(deadline=None, max_examples=60)
@given(dynamic_graphs(carried=False), node_sets)
def test_the_transposed_csr_holds_the_same_arcs_by_source(plain: PlainGraph, nodes: list[int]) -> None:
    nodes = [v for v in nodes if v < plain.num_nodes]
    for graph in (plain.build(), plain.build().subset(nodes)):
        for snapshot in graph:
            row_ptr, col, position = snapshot.transposed
            src, dst = snapshot.arcs()
            by_source = np.repeat(np.arange(snapshot.num_nodes), np.diff(row_ptr))
            assert list(zip(by_source, col, strict=True)) == sorted(zip(src, dst, strict=True))
            assert src[position].tolist() == by_source.tolist()
            assert dst[position].tolist() == col.tolist()


@pytest.mark.parametrize("name", AWKWARD)
def test_columns_ascend_and_all_indices_are_32_bits_wide(name: str) -> None:
    for graph in _views(AWKWARD[name].build()):
        for snapshot in graph:
            for array in (snapshot.nodes, snapshot.row_ptr, snapshot.col, *snapshot.transposed):
                assert array.dtype == np.int32
            for row in np.split(snapshot.col, snapshot.row_ptr[1:-1]):
                assert row.tolist() == sorted(row)


@pytest.mark.parametrize("name", AWKWARD)
def test_arrays_of_a_graph_are_read_only(name: str) -> None:
    for graph in _views(AWKWARD[name].build()):
        shown: list[Any] = [graph.cell_ptr]
        for snapshot in graph:
            shown += [snapshot.nodes, snapshot.row_ptr, snapshot.col, snapshot.weight, snapshot.x, snapshot.y]
            shown += [snapshot.in_degree, snapshot.out_degree, *snapshot.transposed]
        for array in shown:
            if array is not None:
                with pytest.raises(ValueError, match="read-only"):
                    array[...] = 0
        with pytest.raises(AttributeError):
            graph.features = None  # type: ignore[misc]


def test_views_copy_nothing_until_they_are_read() -> None:
    graph = AWKWARD["a node that leaves and returns"].build()
    for view in (graph[1:], graph.subset([0, 2])):
        assert view.storage is graph.storage
    assert isinstance(graph.storage, ArrayStorage)
    assert np.shares_memory(graph[1:][0].col, graph.storage.col)
    assert np.shares_memory(graph[1:][0].row_ptr, graph.storage.row_ptr)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (np.array([True, False, True]), "nodes must be integers, not bool"),
        ([3], "node 3 is not one of the graph's 3 nodes"),
        ([-1], "node -1 is not one of the graph's 3 nodes"),
        (np.array([[0], [1]]), r"not of shape \(2, 1\)"),
    ],
)
def test_subset_of_invalid_nodes_is_refused(nodes: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        AWKWARD["a node that leaves and returns"].build().subset(nodes)


@pytest.mark.parametrize("nodes", [[], (), set(), range(0), np.empty(0), np.empty(0, np.int32)])
def test_a_subset_of_no_nodes_has_no_cells(nodes: Any) -> None:
    graph = AWKWARD["features and labels per cell"].build().subset(nodes)
    assert (graph.num_cells, graph.num_edges, len(graph)) == (0, 0, 3)


@pytest.mark.parametrize("t", [2, -3])
def test_a_snapshot_beyond_the_end_is_an_index_error(t: int) -> None:
    graph = AWKWARD["isolated nodes"].build()
    with pytest.raises(OptionError, match="step, not -1"):
        graph[::-1]
    with pytest.raises(IndexError, match=f"snapshot {t} of a graph with 2"):
        graph[t]
    with pytest.raises(IndexError):
        graph[:0][0]
    assert graph[-1] == graph[np.int64(1)]  # type: ignore[call-overload]


@settings(deadline=None, max_examples=60)
@given(dynamic_graphs())
def test_the_order_in_which_nodes_and_edges_are_given_does_not_matter(plain: PlainGraph) -> None:
    plain = replace(plain, weighted=False)
    turned = [replace(shot, nodes=shot.nodes[::-1], edges=shot.edges[::-1]) for shot in plain.snapshots]
    assert plain.build() == replace(plain, snapshots=turned).build()


CHANGES: dict[str, dict[str, Any]] = {
    "an edge more": {"edges": [[[0, 1, 2], [1, 2, 0]], [[1], [0]]], "weights": [[1, 2, 3], [3]]},
    "an edge turned": {"edges": [[[0, 2], [1, 1]], [[1], [0]]]},
    "another weight": {"weights": [[1, 2], [4]]},
    "no weights": {"weights": None},
    "undirected": {"directed": False},
    "more ids": {"num_nodes": 4, "x": np.ones((4, 1)), "y": [0, 1, 2, 3], "nodes": [[0, 1, 2]] * 2},
    "a node missing": {"nodes": [[0, 1, 2], [0, 1]]},
    "another feature": {"x": np.zeros((3, 1))},
    "no features": {"x": None},
    "another label": {"y": [0, 1, -1]},
    "a snapshot less": {"edges": [[[0, 1], [1, 2]]], "weights": [[1, 2]]},
}


@pytest.mark.parametrize("change", CHANGES)
def test_graphs_that_differ_in_one_thing_are_not_equal(change: str) -> None:
    base: dict[str, Any] = {
        "edges": [[[0, 1], [1, 2]], [[1], [0]]],
        "weights": [[1, 2], [3]],
        "num_nodes": 3,
        "x": np.ones((3, 1)),
        "y": [0, 1, 2],
    }
    assert from_edges(**base) == from_edges(**base)
    assert from_edges(**base) != from_edges(**{**base, **CHANGES[change]})


def test_missing_values_are_equal_to_missing_values() -> None:
    one, other = (from_edges([[[0], [1]]], x=np.array([[np.nan], [1.0]]), y=[np.nan, 0.5]) for _ in range(2))
    assert one == other
    assert one != other.with_features(Static(np.array([[0.0], [1.0]])))
    assert one != "a graph"


@pytest.mark.parametrize(
    ("carrier", "message"),
    [
        (Static(np.ones((2, 1))), "features have 2 rows, the graph has 3 nodes"),
        (PerCell(np.ones((3, 1))), "features have 3 rows, the graph has 8 cells"),
        (Standardized(PerCell(np.ones((3, 1))), (0.0,), (1.0,)), "features have 3 rows, the graph has 8 cells"),
        (Static(np.ones(3)), r"features must be one row of numbers, not of shape \(\)"),
        (Static(np.ones((3, 1, 1))), r"features must be one row of numbers, not of shape \(1, 1\)"),
    ],
)
def test_features_that_do_not_fit_are_refused(carrier: Any, message: str) -> None:
    graph = AWKWARD["a node that leaves and returns"].build()
    with pytest.raises(InputError, match=message):
        graph.with_features(carrier)


def test_labels_that_do_not_fit_are_refused() -> None:
    graph = AWKWARD["a node that leaves and returns"].build()
    with pytest.raises(InputError, match="labels have 2 rows, the graph has 3 nodes"):
        graph.with_labels(Static(np.ones(2)))
    with pytest.raises(InputError, match=r"label must be one number or one row of them, not of shape \(2, 2\)"):
        graph.with_labels(Static(np.ones((3, 2, 2))))
    assert graph.with_labels(Static(np.ones((3, 2))))[1].y is not None
    assert graph.with_labels(None).labels is None


def test_repr_names_features_labels_and_sizes() -> None:
    graph = AWKWARD["features and labels per node"].build()
    assert repr(graph) == (
        "DynamicGraph(3 nodes, 3 snapshots (2024-01 … 2024-03), 8 cells, 5 edges, directed, unweighted, "
        "2 features per node, 1 label per node)"
    )
    assert "view of 1 node," in repr(graph.subset([0]))
    assert "2 features derived" in repr(graph.with_features(Degrees()))
    assert "2 features per cell" in repr(AWKWARD["features and labels per cell"].build())
    assert "0 snapshots" in repr(graph[:0])
    assert repr(graph[1]) == "Snapshot(t=1, time='2024-02', nodes=2, edges=1)"


def test_parallel_arcs_of_a_view_keep_their_weights_in_order() -> None:
    graph = AWKWARD["parallel edges"].build().subset([0, 1])
    assert shown_arcs(graph[0]) == [(0, 1, 9.0), (1, 0, 5.0), (1, 0, 3.0), (1, 0, 4.0)]
