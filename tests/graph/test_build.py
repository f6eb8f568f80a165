from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from strobe.errors import InputError, OptionError
from strobe.graph import Degrees, DiskSink, Edges, GraphBuilder, NodeNames, PerCell, Standardized, Static, from_edges
from strobe.graph import build as build_module
from strobe.graph.edge_sort import EdgeSorter
from strobe.ops.sparse.csr import MAX_NODES
from tests.support.graphs import AWKWARD, PlainGraph, assert_same, dynamic_graphs, shown_arcs


@settings(deadline=None, max_examples=150)
@given(dynamic_graphs())
def test_any_graph_is_built_as_it_is_described(plain: PlainGraph) -> None:
    assert_same(plain.build(), plain)


def test_sorting_through_the_disk_builds_the_same_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [AWKWARD[name].build() for name in AWKWARD]
    monkeypatch.setattr(build_module, "EdgeSorter", functools.partial(EdgeSorter, run_arcs=2))
    for name, graph in zip(AWKWARD, expected, strict=True):
        assert AWKWARD[name].build() == graph
        assert graph.save(tmp_path / name) == graph
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(AWKWARD)
    assert {path.suffix for path in tmp_path.glob("*/*")} == {".npy", ".json"}


def test_edges_may_come_in_parts() -> None:
    builder = GraphBuilder(num_nodes=3, weighted=True, parallel="last")
    builder.add([Edges([0], [1], [5.0]), Edges([], []), Edges([2, 0], [1, 1], [6.0, 7.0])])
    builder.add([])
    assert [shown_arcs(snapshot) for snapshot in builder.finish()] == [[(1, 0, 7.0), (1, 2, 6.0)], []]


@pytest.mark.parametrize(
    ("directed", "parallel", "self_loops", "arcs", "num_edges"),
    [
        (True, "keep", True, [(0, 1, 4), (1, 0, 1), (1, 0, 2), (1, 1, 8)], 4),
        (True, "last", True, [(0, 1, 4), (1, 0, 2), (1, 1, 8)], 3),
        (True, "sum", False, [(0, 1, 4), (1, 0, 3)], 2),
        (False, "sum", True, [(0, 1, 7), (1, 0, 7), (1, 1, 8)], 2),
        (False, "count", True, [(0, 1, 3), (1, 0, 3), (1, 1, 1)], 2),
        (True, "count", False, [(0, 1, 1), (1, 0, 2)], 2),
        (False, "last", False, [(0, 1, 4), (1, 0, 4)], 1),
    ],
)
def test_parallel_edges_and_self_loops_follow_the_options(
    directed: bool, parallel: Any, self_loops: bool, arcs: list[tuple[int, int, float]], num_edges: int
) -> None:
    graph = from_edges(
        [[[0, 0, 1, 1], [1, 1, 0, 1]]],
        weights=None if parallel == "count" else [[1, 2, 4, 8]],
        directed=directed,
        parallel=parallel,
        self_loops=self_loops,
    )
    assert shown_arcs(graph[0]) == arcs
    assert graph.num_edges == num_edges


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, ">i4", ">u8"])
@pytest.mark.parametrize("directed", [True, False])
def test_ids_may_have_any_integer_type(dtype: Any, directed: bool) -> None:
    plain = from_edges([[[0, 2, 1], [2, 1, 1]]], directed=directed)
    builder = GraphBuilder(num_nodes=3, directed=directed)
    builder.add(Edges(np.array([0, 2, 1], dtype), np.array([2, 1, 1], np.int64)), nodes=np.array([2, 0, 1], dtype))
    assert builder.finish() == plain


def test_more_than_46340_nodes_do_not_collide(tmp_path: Path) -> None:
    """Where a 32-bit key of (destination, source) would overflow."""
    num_nodes, rng = 70_001, np.random.default_rng(0)
    edges = np.concatenate([rng.integers(0, num_nodes, (2, 5000)), [[num_nodes - 1], [num_nodes - 2]]], axis=1)
    for nodes in (None, np.arange(1, num_nodes)):
        for given_edges in (edges.astype(np.int32), edges.astype(np.uint32)):
            builder = GraphBuilder(num_nodes=num_nodes, directed=False)
            listed = given_edges if nodes is None else given_edges[:, (given_edges > 0).all(axis=0)]
            builder.add(Edges(*listed), nodes=nodes)
            graph = builder.finish()
            src, dst, _ = graph[0].edges()
            expected = sorted(map(tuple, np.sort(listed.astype(np.int64), axis=0).T.tolist()))
            assert sorted(zip(src.tolist(), dst.tolist(), strict=True)) == expected
            assert graph.save(tmp_path / "graph", overwrite=True) == graph


def test_given_arrays_may_be_changed_afterwards_without_changing_the_graph() -> None:
    src, dst, weight = np.array([0, 1]), np.array([1, 2]), np.array([1.0, 2.0], np.float32)
    x, y, nodes = np.ones((3, 2), np.float32), np.arange(3), np.arange(3)
    builder = GraphBuilder(num_nodes=4, weighted=True)
    builder.add(Edges(src, dst, weight), nodes=nodes, x=x, y=y)
    graph = builder.finish()
    before = [shown_arcs(graph[0]), np.array(graph[0].x).tolist(), np.array(graph[0].y).tolist()]
    for array in (src, dst, weight, x, y, nodes):
        array[:] = 0
    assert [shown_arcs(graph[0]), np.array(graph[0].x).tolist(), np.array(graph[0].y).tolist()] == before


HUGE = np.array([2**64 - 1], np.uint64)
BAD_SNAPSHOTS: dict[str, tuple[dict[str, Any], str]] = {
    "float ids": ({"edges": Edges([0.5], [1])}, r"edge sources must be integers, not float64 \(the first is 0.5\)"),
    "ids as text": ({"edges": Edges(["0"], [1])}, "edge sources must be integers, not <U1 .*'0'"),
    "ids as booleans": ({"edges": Edges([True], [1])}, "must be integers, not bool"),
    "negative id": ({"edges": Edges([0], [-3])}, "edge destinations contain -3"),
    "id too large": ({"edges": Edges([4], [0])}, r"edge sources contain 4.* 0\.\.3"),
    "huge unsigned id": ({"edges": Edges([0], HUGE)}, "contain 18446744073709551615"),
    "0-d edges": ({"edges": Edges(np.array(1), np.array(2))}, r"one-dimensional array, not of shape \(\)"),
    "ragged edges": ({"edges": Edges([[0], [1, 2]], [0])}, "edge sources cannot be read as an array"),
    "sources without destinations": ({"edges": Edges([0, 1], [1])}, "2 sources but 1 destinations"),
    "duplicated node": ({"nodes": [3, 1, 3], "weight": []}, "node 3 is listed twice"),
    "node outside": ({"nodes": [0, 9]}, "nodes contain 9"),
    "edge to an absent node": ({"edges": Edges([0], [2], [1]), "nodes": [0, 3]}, "touches node 2"),
    "edge beyond a prefix of nodes": ({"edges": Edges([0], [2], [1]), "nodes": [0, 1]}, "touches node 2"),
    "edge without any node": ({"edges": Edges([0], [2], [1]), "nodes": []}, "touches node 0"),
    "NaN weight": ({"weight": [1.0, np.nan]}, "edge weights must be finite, number 1 is nan"),
    "weights as text": ({"weight": ["1", "2"]}, "edge weights must be numbers, not <U1 .*'1'"),
    "complex weights": ({"weight": [1j, 2]}, "edge weights must be numbers, not complex128"),
    "column of weights": ({"weight": [[1.0], [2.0]]}, r"edge weights of shape \(2, 1\) for 2 edges"),
    "weights missing": ({"weight": None}, "edge weights must be given for every snapshot"),
    "features missing": ({"x": None}, "features must be given for every snapshot or for none"),
    "3-d features": ({"x": np.zeros((4, 2, 2))}, r"features must be rows of numbers, not float64 of shape \(4, 2, 2\)"),
    "features as text": ({"x": ["a"] * 4}, "features must be rows of numbers, not <U1"),
    "too few rows": ({"x": np.zeros((3, 2))}, r"features of shape \(3, 2\) for 4 nodes"),
    "other width": ({"x": np.zeros((4, 3))}, r"features have shape \(3,\) per node, those before it \(2,\)"),
    "too many labels": ({"y": [0] * 5}, r"labels of shape \(5,\) for 4 nodes"),
    "labels of another shape": ({"y": [[0]] * 4}, r"labels have shape \(1,\) per node, those before it \(\)"),
    "labels of another kind": ({"y": [0.5] * 4}, "labels are float64, those before it int64"),
    "labels as text": ({"y": ["a"] * 4}, "labels must be one number or one row of numbers each, not <U1"),
    "huge unsigned label": ({"y": np.repeat(HUGE, 4)}, "labels contain 18446744073709551615"),
    "time as a float": ({"time": 1.5}, "time must be an integer or a string, not 1.5"),
    "time as a date": ({"time": np.datetime64("2024-01-01")}, "time must be an integer or a string"),
}


def _add_good(builder: GraphBuilder) -> None:
    builder.add(Edges([0, 1], [1, 2], [1.0, 2.0]), x=np.ones((4, 2)), y=[0, 1, 2, -1])


@pytest.mark.parametrize("name", BAD_SNAPSHOTS)
def test_a_bad_snapshot_is_refused_with_its_number_and_leaves_no_trace(name: str) -> None:
    options, message = BAD_SNAPSHOTS[name]
    if "nodes" in options:
        size = len(options["nodes"])
        options = {"x": np.ones((size, 2)), "y": [0] * size, "edges": Edges([], [], []), **options}
    options = {"x": np.ones((4, 2)), "y": [0, 1, 2, -1], **options}
    edges = options.pop("edges", Edges([0, 1], [1, 2], options.pop("weight", [1.0, 2.0])))
    options.pop("weight", None)
    builder, clean = (GraphBuilder(num_nodes=4, weighted=True) for _ in range(2))
    _add_good(builder)
    _add_good(clean)
    with pytest.raises(InputError, match=f"snapshot 1: .*{message}"):
        builder.add(edges, **options)
    _add_good(builder)
    _add_good(clean)
    assert builder.finish() == clean.finish()


def test_a_first_snapshot_that_was_refused_decides_nothing_about_the_others() -> None:
    builder = GraphBuilder(num_nodes=2)
    with pytest.raises(InputError, match="snapshot 0: an edge touches node 1"):
        builder.add(Edges([0], [1]), nodes=[0], x=[[1.0]])
    with pytest.raises(InputError, match="unweighted"):
        builder.add(Edges([0], [1], [1.0]))
    builder.add(Edges([0], [1]))
    assert builder.finish().features is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_nodes": -1}, "num_nodes must be from 0 .*-1"),
        ({"num_nodes": MAX_NODES + 1}, "num_nodes must be from 0 .*number the nodes from 0 on"),
        ({"num_nodes": 3, "parallel": "first"}, "parallel must be one of keep, count, sum, last, not 'first'"),
        ({"num_nodes": 3, "parallel": "sum"}, "'sum' needs edge weights"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        GraphBuilder(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": Degrees()}, "x was given .* again"),
        ({"features": PerCell(np.ones((4, 2)))}, "x was given .* again"),
        ({"labels": Static(np.arange(4))}, "y was given .* again"),
        ({"names": NodeNames.from_names(["a", "b"])}, "2 names for 4 nodes"),
    ],
)
def test_finish_refuses_values_of_the_wrong_length(options: dict[str, Any], message: str) -> None:
    builder = GraphBuilder(num_nodes=4, weighted=True)
    _add_good(builder)
    with pytest.raises(InputError, match=message):
        builder.finish(**options)


def test_features_given_with_the_snapshots_can_be_derived_from_at_the_end() -> None:
    builder = GraphBuilder(num_nodes=2)
    builder.add(Edges([0], [1]), x=[[1.0], [3.0]])
    graph = builder.finish(features=Standardized(PerCell(np.empty((0, 1))), (2.0,), (0.5,)))
    assert np.asarray(graph[0].x).tolist() == [[-2.0], [2.0]]


@pytest.mark.parametrize("to_disk", [False, True])
def test_an_empty_snapshot_says_nothing_about_the_type_of_labels(to_disk: bool, tmp_path: Path) -> None:
    for first, then in (([], [3]), ([3], [])):
        with DiskSink(tmp_path / "graph", overwrite=True) as sink:
            builder = GraphBuilder(sink if to_disk else None, num_nodes=1)
            for labels in (first, then):
                builder.add(Edges([], []), nodes=range(len(labels)), y=labels)
            graph = builder.finish()
        assert graph.labels is not None
        assert isinstance(graph.labels, PerCell)
        assert graph.labels.values.dtype == np.int64


def test_a_finished_builder_takes_nothing_more() -> None:
    builder = GraphBuilder(num_nodes=2)
    builder.add(Edges([0], [1]))
    graph = builder.finish()
    with pytest.raises(OptionError, match="finished"):
        builder.add(Edges([0], [1]))
    with pytest.raises(OptionError, match="finished"):
        builder.finish()
    assert len(graph) == 1
