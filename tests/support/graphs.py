"""Small awkward graphs, as plain Python data that is also the slow, obvious reference for what they mean."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from strobe.graph import Degrees, DynamicGraph, Edges, FeatureProvider, GraphBuilder, NodeNames, Snapshot, from_edges

Row = list[float]
Label = int | float


@dataclass(frozen=True)
class PlainSnapshot:
    """Present nodes in the order they are given, edges (source, destination, weight), what cells carry."""

    nodes: list[int]
    edges: list[tuple[int, int, float]]
    time: int | str
    x: dict[int, Row] | None = None
    y: dict[int, Label] | None = None


@dataclass(frozen=True)
class PlainGraph:
    """A dynamic graph as lists and dictionaries; every question is answered the slow way."""

    num_nodes: int
    snapshots: list[PlainSnapshot]
    directed: bool = True
    weighted: bool = False
    node_x: list[Row] | None = None
    node_y: list[Label] | None = None
    derived: Degrees | None = None

    def build(self, **options: Any) -> DynamicGraph:
        """The same graph through ``from_edges``."""
        shots = self.snapshots
        x: FeatureProvider | Any = self.derived if self.node_x is None else np.array(self.node_x, np.float32)
        y: Any = None if self.node_y is None else np.array(self.node_y)
        if any(shot.x is not None for shot in shots):
            x = [_rows([shot.x[v] for v in shot.nodes], np.float32) for shot in shots if shot.x is not None]
        if any(shot.y is not None for shot in shots):
            kind = np.int64 if self._integer_labels() else np.float64
            y = [np.array([shot.y[v] for v in shot.nodes], kind) for shot in shots if shot.y is not None]
        return from_edges(
            [np.array([[u, v] for u, v, _ in shot.edges], np.int64).reshape(-1, 2).T for shot in shots],
            weights=[[w for _, _, w in shot.edges] for shot in shots] if self.weighted else None,
            num_nodes=self.num_nodes,
            nodes=[shot.nodes for shot in shots],
            x=x,
            y=y,
            times=[shot.time for shot in shots],
            directed=self.directed,
            **options,
        )

    def present(self, t: int) -> list[int]:
        return sorted(self.snapshots[t].nodes)

    def cells(self) -> list[tuple[int, int]]:
        """(t, node) of every cell in the order of their numbers."""
        return [(t, v) for t in range(len(self.snapshots)) for v in self.present(t)]

    def arcs(self, t: int) -> list[tuple[int, int, float]]:
        """(destination, source, weight) by global id, sorted; parallel ones in the order they were given."""
        arcs = []
        for u, v, w in self.snapshots[t].edges:
            arcs.append((v, u, w))
            if not self.directed and u != v:
                arcs.append((u, v, w))
        return sorted(arcs, key=lambda arc: arc[:2])

    def x(self, t: int) -> list[Row] | None:
        shot = self.snapshots[t]
        if self.derived is not None:
            return [self._degrees(v, t) for v in self.present(t)]
        if self.node_x is not None:
            return [self.node_x[v] for v in self.present(t)]
        return None if shot.x is None else [shot.x[v] for v in self.present(t)]

    def y(self, t: int) -> list[Label] | None:
        shot = self.snapshots[t]
        if self.node_y is not None:
            return [self.node_y[v] for v in self.present(t)]
        return None if shot.y is None else [shot.y[v] for v in self.present(t)]

    def slice(self, key: slice) -> PlainGraph:
        return replace(self, snapshots=self.snapshots[key])

    def subset(self, nodes: Iterable[int]) -> PlainGraph:
        kept = set(nodes)
        return replace(
            self,
            snapshots=[
                replace(
                    shot,
                    nodes=[v for v in shot.nodes if v in kept],
                    edges=[edge for edge in shot.edges if edge[0] in kept and edge[1] in kept],
                )
                for shot in self.snapshots
            ],
        )

    def _degrees(self, node: int, t: int) -> Row:
        arcs = self.arcs(t)
        degrees = [float(sum(arc[0] == node for arc in arcs)), float(sum(arc[1] == node for arc in arcs))]
        assert self.derived is not None
        return [math.log1p(degree) for degree in degrees] if self.derived.log else degrees

    def _integer_labels(self) -> bool:
        return all(isinstance(y, int) for shot in self.snapshots for y in (shot.y or {}).values())


def assert_same(graph: DynamicGraph, plain: PlainGraph) -> None:
    """Everything a graph shows agrees with the plain one, snapshot by snapshot."""
    assert graph.num_nodes == plain.num_nodes
    assert graph.directed == plain.directed
    assert graph.weighted == plain.weighted
    assert len(graph) == graph.num_snapshots == len(plain.snapshots)
    assert graph.times == tuple(shot.time for shot in plain.snapshots)
    assert graph.num_cells == len(plain.cells())
    assert graph.num_edges == sum(len(shot.edges) for shot in plain.snapshots)
    assert graph.num_arcs == sum(len(plain.arcs(t)) for t in range(len(plain.snapshots)))
    for t, snapshot in enumerate(graph):
        assert snapshot.t == t
        assert_same_snapshot(snapshot, plain, t)


def assert_same_snapshot(snapshot: Snapshot, plain: PlainGraph, t: int) -> None:
    present, arcs = plain.present(t), plain.arcs(t)
    assert snapshot.nodes.tolist() == present
    assert snapshot.time == plain.snapshots[t].time
    assert snapshot.has_all_nodes == (len(present) == plain.num_nodes)
    assert snapshot.num_edges == len(plain.snapshots[t].edges)
    assert shown_arcs(snapshot) == [arc if plain.weighted else (*arc[:2], None) for arc in arcs]
    assert snapshot.in_degree.tolist() == [sum(arc[0] == v for arc in arcs) for v in present]
    assert snapshot.out_degree.tolist() == [sum(arc[1] == v for arc in arcs) for v in present]
    for shown, expected in ((snapshot.x, plain.x(t)), (snapshot.y, plain.y(t))):
        assert (shown is None) == (expected is None)
        if shown is not None and expected is not None:
            assert len(shown) == len(present)
            np.testing.assert_allclose(shown, np.array(expected).reshape(shown.shape), rtol=1e-6)


def shown_arcs(snapshot: Snapshot) -> list[tuple[int, int, float | None]]:
    """(destination, source, weight) by global id as the snapshot's CSR holds them, row by row."""
    arcs: list[tuple[int, int, float | None]] = []
    for row, node in enumerate(snapshot.nodes.tolist()):
        for at in range(int(snapshot.row_ptr[row]), int(snapshot.row_ptr[row + 1])):
            weight = None if snapshot.weight is None else float(snapshot.weight[at])
            arcs.append((node, int(snapshot.nodes[snapshot.col[at]]), weight))
    return arcs


def _rows(rows: list[Row], dtype: type[np.float32]) -> Any:
    return np.array(rows, dtype).reshape(len(rows), 2)


def _shot(nodes: list[int], edges: Sequence[tuple[float, ...]], time: int | str = 0, **carried: Any) -> PlainSnapshot:
    """A snapshot whose edges may leave their weight out."""
    weighted = [(int(edge[0]), int(edge[1]), float(edge[2]) if len(edge) > 2 else 1.0) for edge in edges]
    return PlainSnapshot(nodes, weighted, time, **carried)


_EVERYONE = [0, 1, 2, 3]
_LEAVES = [
    _shot([0, 1, 2], [(0, 1), (1, 2)], "2024-01"),
    _shot([0, 2], [(0, 2)], "2024-02"),
    _shot([2, 1, 0], [(1, 0), (2, 1)], "2024-03"),
]

AWKWARD: dict[str, PlainGraph] = {
    "no snapshots": PlainGraph(3, []),
    "no nodes at all": PlainGraph(0, [_shot([], [])]),
    "one node": PlainGraph(1, [_shot([0], [])]),
    "one node with itself": PlainGraph(1, [_shot([0], [(0, 0)], 7)], directed=False),
    "empty snapshot": PlainGraph(
        3, [_shot([0, 1], [(0, 1)], 10), _shot([], [], 20), _shot([0, 1, 2], [(2, 0)], 30)], weighted=True
    ),
    "only empty snapshots": PlainGraph(2, [_shot([], [], x={}, y={}), _shot([], [], 1, x={}, y={})]),
    "no edges": PlainGraph(3, [_shot([0, 1, 2], []), _shot([0, 1, 2], [], 1)], weighted=True, directed=False),
    "isolated nodes": PlainGraph(5, [_shot([0, 1, 2, 3, 4], [(1, 3)]), _shot([0, 1, 2, 3, 4], [(4, 2)], 1)]),
    "a node that leaves and returns": PlainGraph(3, _LEAVES),
    "a node that is never present": PlainGraph(5, [_shot([4, 0, 2], [(4, 0), (0, 2)]), _shot([1], [], 1)]),
    "parallel edges": PlainGraph(
        3, [_shot([0, 1, 2], [(0, 1, 5), (2, 1, 2), (0, 1, 3), (0, 1, 4), (1, 0, 9)])], weighted=True
    ),
    "undirected parallel edges": PlainGraph(
        3, [_shot([0, 1, 2], [(0, 1, 5), (1, 0, 3), (2, 1, 2), (0, 1, 4)])], weighted=True, directed=False
    ),
    "self loops": PlainGraph(3, [_shot([0, 1, 2], [(1, 1), (0, 1), (1, 1), (2, 2)])], directed=False),
    "directed and weighted": PlainGraph(
        4, [_shot(_EVERYONE, [(3, 0, -1.5), (0, 3, 2.5)]), _shot(_EVERYONE, [(1, 2, 0)], 1)], weighted=True
    ),
    "features and labels per node": PlainGraph(
        3, _LEAVES, node_x=[[1.0, 2.0], [math.nan, 0.5], [-3.0, 0.0]], node_y=[2, -1, 0]
    ),
    "features and labels per cell": PlainGraph(
        3,
        [
            _shot([2, 0], [(2, 0)], 0, x={2: [0.5, 1.0], 0: [2.0, math.nan]}, y={2: 1, 0: -1}),
            _shot([], [], 1, x={}, y={}),
            _shot([0, 1, 2], [(0, 1)], 2, x={0: [4.0, 4.0], 1: [5.0, 5.0], 2: [6.0, 6.0]}, y={0: 0, 1: 3, 2: -1}),
        ],
        directed=False,
    ),
    "float labels": PlainGraph(2, [_shot([0, 1], [(0, 1)], y={0: 0.25, 1: math.nan})]),
    "derived features": PlainGraph(3, _LEAVES, derived=Degrees()),
    "derived log features": PlainGraph(3, _LEAVES, derived=Degrees(log=True), directed=False),
}
"""The graphs every test of a graph should survive, by what is awkward about them."""


def full_graph(names: NodeNames | None = None, weight: float = 1.0) -> DynamicGraph:
    """A graph that has everything a graph can have: its own names, unless others are given."""
    builder = GraphBuilder(num_nodes=4, weighted=True)
    builder.add(
        Edges([0, 1], [1, 2], [weight, 2.0]), nodes=[0, 1, 2], time="Mon", x=np.eye(3, dtype=np.float32), y=[1, -1, 0]
    )
    builder.add(Edges([3], [0], [0.5]), time=2, x=np.ones((4, 3)), y=[0, 0, 1, 2])
    names = NodeNames.from_names(["", "anna", "bob", "ö"]) if names is None else names
    return builder.finish(names=names, info={"source": "by hand", "licence": None, "of": [1, 2.5, "ö"]})


_halves = st.integers(-6, 6).map(lambda n: n / 2)  # exact in float32
_values = _halves | st.just(math.nan)


@st.composite
def dynamic_graphs(
    draw: st.DrawFn,
    *,
    max_nodes: int = 6,
    min_snapshots: int = 0,
    max_snapshots: int = 4,
    max_edges: int = 8,
    everyone: bool = False,
    carried: bool = True,
) -> PlainGraph:
    """Random small graphs: build them with ``.build()``; they are their own reference."""
    num_nodes = draw(st.integers(0, max_nodes))
    features = draw(st.sampled_from(["none", "node", "cell", "degrees", "log degrees"] if carried else ["none"]))
    labels = draw(st.sampled_from(["none", "node", "classes", "targets"] if carried else ["none"]))
    label = _values if labels == "targets" else st.integers(-1, 3)
    everyone = everyone or draw(st.booleans())
    snapshots: list[PlainSnapshot] = []
    for t in range(draw(st.integers(min_snapshots, max_snapshots))):
        everybody = list(range(num_nodes))
        nodes = everybody if everyone else draw(st.lists(st.sampled_from(everybody), unique=True)) if num_nodes else []
        node = st.sampled_from(nodes) if nodes else st.nothing()
        edges = draw(st.lists(st.tuples(node, node, _halves), max_size=max_edges)) if nodes else []
        if snapshots and bool(draw(st.booleans())):  # the nodes and edges of an earlier snapshot again
            before = draw(st.sampled_from(snapshots))
            nodes, edges = before.nodes[:: draw(st.sampled_from([1, -1]))], before.edges
        x = {v: [draw(_values), draw(_values)] for v in nodes} if features == "cell" else None
        y = {v: draw(label) for v in nodes} if labels in ("classes", "targets") else None
        snapshots.append(PlainSnapshot(nodes, edges, f"day {t}", x, y))
    return PlainGraph(
        num_nodes,
        snapshots,
        directed=draw(st.booleans()),
        weighted=draw(st.booleans()),
        node_x=[[draw(_values), draw(_values)] for _ in range(num_nodes)] if features == "node" and num_nodes else None,
        node_y=[draw(label) for _ in range(num_nodes)] if labels == "node" else None,
        derived=Degrees(log=features.startswith("log")) if features.endswith("degrees") else None,
    )
