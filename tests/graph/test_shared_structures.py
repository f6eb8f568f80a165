"""Snapshots with equal nodes, edges and weights share one stored structure, and nothing else shows it."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.errors import FormatError, OptionError
from strobe.graph import (
    Degrees,
    DiskSink,
    DynamicGraph,
    Edges,
    GraphBuilder,
    from_edges,
    from_pyg,
    from_scipy,
    from_signal,
    open_graph,
    to_pyg,
    to_scipy,
    to_signal,
)
from strobe.graph import build as build_module
from strobe.graph import written as written_module
from strobe.graph.edge_sort import EdgeSorter
from strobe.graph.storage import ArrayStorage
from tests.support.forged import forge_array, forge_value
from tests.support.graphs import PlainGraph, dynamic_graphs
from tests.support.unshared import without_sharing


def periodic_graph(weights: Sequence[float] = (1.0, 2.0)) -> DynamicGraph:
    """Six snapshots of two structures with features that change: 0, 1, 0, 0, 1, 0."""
    edges = [np.array([[0, 1], [1, 2]]), np.array([[2, 0], [0, 2]])]
    order = [0, 1, 0, 0, 1, 0]
    return from_edges(
        [edges[which] for which in order],
        weights=[np.array(weights, np.float32)] * 6,
        num_nodes=3,
        x=list(np.arange(36, dtype=np.float32).reshape(6, 3, 2)),
    )


@settings(deadline=None, max_examples=100)
@given(dynamic_graphs(max_snapshots=6), st.data())
def test_a_graph_equals_the_same_graph_without_sharing(plain: PlainGraph, data: st.DataObject) -> None:
    graph = plain.build()
    apart = without_sharing(graph)
    key = slice(data.draw(st.integers(0, 6)), data.draw(st.integers(0, 6)), data.draw(st.integers(1, 3)))
    nodes = data.draw(st.lists(st.sampled_from(range(plain.num_nodes)), unique=True)) if plain.num_nodes else []
    for shared, reference in (
        (graph, apart),
        (graph[key], apart[key]),
        (graph.subset(nodes), apart.subset(nodes)),
        (graph.subset(nodes)[key], apart[key].subset(nodes)),
    ):
        assert shared == reference
        assert shared.cell_ptr.tolist() == reference.cell_ptr.tolist()
        assert (shared.num_edges, shared.num_arcs) == (reference.num_edges, reference.num_arcs)
        assert shared.num_structures <= len(shared)


@settings(deadline=None, max_examples=25)
@given(dynamic_graphs(max_snapshots=6), st.data())
def test_a_graph_and_its_views_share_on_disk_what_they_shared(plain: PlainGraph, data: st.DataObject) -> None:
    graph = plain.build()
    nodes = data.draw(st.lists(st.sampled_from(range(plain.num_nodes)), unique=True)) if plain.num_nodes else []
    view = data.draw(st.sampled_from([graph, graph[1:], graph.subset(nodes)[::2]]))
    with tempfile.TemporaryDirectory() as place:
        saved = view.save(Path(place) / "graph")
        assert saved == open_graph(Path(place) / "graph", verify=True) == without_sharing(view)
        assert saved.num_structures <= view.num_structures


@settings(deadline=None, max_examples=100)
@given(dynamic_graphs(max_snapshots=6, carried=False))
def test_equal_snapshots_share_and_others_do_not(plain: PlainGraph) -> None:
    graph = plain.build()
    for a, one in zip(graph.structures.tolist(), graph, strict=True):
        for b, other in zip(graph.structures.tolist(), graph, strict=True):
            assert (a == b) == (one == other)


def test_snapshots_are_found_that_were_equal_before_any_node_was_absent() -> None:
    builder = GraphBuilder(num_nodes=1)
    for nodes in ([0], [0], [], [0]):
        builder.add(Edges([], []), nodes=nodes)
    assert builder.finish().structures.tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("run_arcs", [1 << 24, 2])
@pytest.mark.parametrize("compared", [1 << 22, 1])
def test_sharing_is_found_in_memory_and_on_disk(
    run_arcs: int, compared: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_module, "EdgeSorter", functools.partial(EdgeSorter, run_arcs=run_arcs))
    monkeypatch.setattr(written_module, "_READ_ROWS", compared)
    shots: list[Any] = [([0, 1, 2, 2], [1, 2, 0, 1]), ([2, 0], [0, 2]), ([2, 2, 1, 0], [1, 0, 2, 1]), ([0, 2], [2, 0])]

    def build(sink: DiskSink | None) -> DynamicGraph:
        builder = GraphBuilder(sink, num_nodes=4, directed=False)
        for t, (src, dst) in enumerate(shots):
            builder.add(Edges(src, dst), nodes=[0, 1, 2] if t % 2 else None)
        return builder.finish()

    with DiskSink(tmp_path / "graph") as sink:
        on_disk = build(sink)
    for graph in (on_disk, build(None), open_graph(tmp_path / "graph", verify=True)):
        assert graph.structures.tolist() == [0, 1, 0, 1]
        assert graph == without_sharing(graph)
    assert np.load(tmp_path / "graph" / "col.npy").size == 8 + 4


def test_equal_checksums_alone_do_not_make_structures_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written_module, "crc32", lambda rows, before=0: 0)
    graph = from_edges([[[0], [1]], [[1], [0]], [[0], [1]], [[1], [1]], [[1], [0]]])
    assert graph.structures.tolist() == [0, 1, 0, 2, 1]
    present = from_edges([[[], []]] * 3, nodes=[[0, 1], [0, 2], [0, 1]], num_nodes=3)
    assert present.structures.tolist() == [0, 1, 0]
    signed = from_edges([[[0], [1]]] * 2, weights=[[0.0], [-0.0]])
    assert signed.structures.tolist() == [0, 1]


def test_repeat_adds_a_snapshot_with_rows_of_its_own() -> None:
    builder = GraphBuilder(num_nodes=3)
    builder.add(Edges([0], [2]), nodes=[2, 0], x=[[2.0], [0.0]])
    builder.add(Edges([1], [2]), x=[[5.0], [6.0], [7.0]])
    builder.repeat(0, time="again", x=[[8.0], [9.0]])
    with pytest.raises(OptionError, match="no snapshot 3"):
        builder.repeat(3, x=[[1.0]])
    graph = builder.finish()
    assert graph.times == (0, 1, "again")
    assert graph.structures.tolist() == [0, 1, 0]
    assert [np.array(snapshot.x).ravel().tolist() for snapshot in graph] == [[0, 2], [5, 6, 7], [8, 9]]


def test_a_static_graph_takes_the_space_of_one_snapshot_and_its_signal(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 50, (2, 400))
    graph = from_edges([edges] * 300, num_nodes=50, x=list(rng.standard_normal((300, 50, 1)).astype(np.float32)))
    assert graph.num_structures == 1
    assert graph[100:200].num_structures == 1
    assert graph.storage.nbytes < 20_000
    assert graph.save(tmp_path / "graph").storage.nbytes < 20_000
    assert graph.num_arcs == 300 * 400


@pytest.mark.parametrize("directed", [True, False])
def test_conversions_of_a_static_graph_share_its_structure(directed: bool) -> None:
    edges = np.array([[0, 1, 0], [1, 2, 2]])
    graph = from_edges(
        [edges] * 4,
        weights=[[1.0, 2.0, 0.5]] * 4,
        directed=directed,
        x=list(np.ones((4, 3, 1))),
        y=list(np.ones((4, 3))),
    )
    converted = [
        from_pyg(to_pyg(graph), num_nodes=3, directed=directed),
        from_signal(to_signal(graph, _signal), directed=directed),
    ]
    for each in converted:
        assert each == graph
        assert each.num_structures == 1
    assert from_scipy(to_scipy(graph), directed=directed).num_structures == 1


def _signal(*, edge_indices: Any, edge_weights: Any, features: Any, targets: Any) -> list[Any]:
    return [
        dict(zip(("edge_index", "edge_attr", "x", "y"), each, strict=True))
        for each in zip(edge_indices, edge_weights, features, targets, strict=True)
    ]


def test_snapshots_of_a_pyg_graph_whose_nodes_are_in_another_order_get_their_own_rows() -> None:
    edges, x = np.array([[1], [0]]), [np.array([[1.0], [0.0]]), np.array([[3.0], [2.0]])]
    graph = from_edges([edges] * 2, nodes=[np.array([1, 0])] * 2, x=x)
    assert graph.num_structures == 1
    assert [np.array(snapshot.x).ravel().tolist() for snapshot in graph] == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("at", "value"), [(0, 1), (1, -1), (1, 2), (1, 1 << 30), (2, 1), (5, 1)], ids=lambda value: str(value)
)
def test_a_forged_structure_is_refused(at: int, value: int, tmp_path: Path) -> None:
    edges = [np.array([[0, 1], [1, 2]]), np.array([[2], [0]])]
    graph = from_edges([edges[which] for which in (0, 1, 0, 0, 1, 0)], num_nodes=3)
    graph.save(tmp_path / "graph")
    forge_value(tmp_path / "graph", "structure", at, value)
    with pytest.raises(FormatError, match="no valid graph"):
        open_graph(tmp_path / "graph")


@pytest.mark.parametrize("structure", [[0, 1, 2, 3, 4, 5], [0] * 6, [0, 1, 0, 0, 1], [0, 1, 0, 0, 1, 2]])
def test_structures_of_another_number_are_refused(structure: list[int], tmp_path: Path) -> None:
    periodic_graph().save(tmp_path / "graph")
    forge_array(tmp_path / "graph", "structure", np.array(structure, np.int32))
    with pytest.raises(FormatError):
        open_graph(tmp_path / "graph")


@pytest.mark.parametrize("name", ["col", "row_ptr", "weight"])
def test_a_fault_of_a_shared_structure_is_found(name: str, tmp_path: Path) -> None:
    periodic_graph().save(tmp_path / "graph")
    forge_value(tmp_path / "graph", name, -1, np.nan if name == "weight" else 9)
    with pytest.raises(FormatError, match="weight" if name == "weight" else "snapshot 1"):
        open_graph(tmp_path / "graph")


def test_features_derived_from_shared_edges_are_those_of_each_snapshot() -> None:
    graph = periodic_graph().with_features(Degrees())
    assert graph == without_sharing(graph)
    assert isinstance(graph.storage, ArrayStorage)
