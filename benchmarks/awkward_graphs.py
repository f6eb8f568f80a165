"""Thirty-four awkward graphs: each has one property that code for ordinary graphs forgets."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from strobe.graph import Degrees, DynamicGraph, Edges, GrowingGraph, PerCell, from_edges, open_graph

Make = Callable[[np.random.Generator], DynamicGraph]
Rows = npt.NDArray[Any]

NODES, SNAPSHOTS, EDGES = 9, 8, 14
GRAPHS: dict[str, Make] = {}


def _named(name: str) -> Callable[[Make], Make]:
    def add(make: Make) -> Make:
        GRAPHS[name] = make
        return make

    return add


def _graph(
    rng: np.random.Generator,
    edges: Sequence[Rows] | None = None,
    *,
    num_nodes: int = NODES,
    nodes: Sequence[Rows] | None = None,
    x: Any = "random",
    y: Any = "classes",
    **options: Any,
) -> DynamicGraph:
    """An ordinary graph but for what is given. Labels are classes of nodes, one number each."""
    listed = [rng.integers(0, num_nodes, (2, EDGES)) for _ in range(SNAPSHOTS)] if edges is None else list(edges)
    features = rng.normal(size=(num_nodes, 3)).astype(np.float32) if isinstance(x, str) else x
    labels = rng.integers(0, 3, num_nodes) if isinstance(y, str) else y
    return from_edges(listed, num_nodes=num_nodes, nodes=nodes, x=features, y=labels, **options)


def _nothing() -> Rows:
    return np.empty((2, 0), np.int64)


def _among(rng: np.random.Generator, nodes: Rows, count: int = EDGES) -> Rows:
    """Edges between some of the nodes; none where there is no node."""
    return nodes[rng.integers(0, len(nodes), (2, count))] if len(nodes) else _nothing()


def _present(rng: np.random.Generator, nodes: Sequence[Any], **options: Any) -> DynamicGraph:
    """A graph whose snapshots have these nodes, and edges among them."""
    listed = [np.asarray(each, np.int64) for each in nodes]
    return _graph(rng, [_among(rng, each) for each in listed], nodes=listed, **options)


def _empty_at(*at: int) -> Make:
    return lambda rng: _present(rng, [[] if t in at else range(NODES) for t in range(SNAPSHOTS)])


def _weighted(weights: Callable[[np.random.Generator], Any]) -> Make:
    return lambda rng: _graph(rng, weights=[weights(rng) for _ in range(SNAPSHOTS)])


def _of_snapshots(count: int) -> Make:
    return lambda rng: _graph(rng, [rng.integers(0, NODES, (2, EDGES)) for _ in range(count)])


GRAPHS |= {
    "empty snapshots at the start": _empty_at(0, 1, 2),
    "empty snapshots in the middle": _empty_at(3, 4),
    "empty snapshots at the end": _empty_at(6, 7),
    "only one snapshot is not empty": _empty_at(*(t for t in range(SNAPSHOTS) if t != 2)),
    "validation snapshots are empty": _empty_at(4, 5),
    "no edges": lambda rng: _graph(rng, [_nothing()] * SNAPSHOTS),
    "one edge in all": lambda rng: _graph(rng, [np.array([[0], [1]]), *[_nothing()] * (SNAPSHOTS - 1)]),
    "one node": lambda rng: _graph(rng, [np.zeros((2, 1), np.int64)] * SNAPSHOTS, num_nodes=1),
    "two nodes": lambda rng: _graph(rng, [np.array([[0, 1], [1, 0]])] * SNAPSHOTS, num_nodes=2),
    "isolated nodes": lambda rng: _graph(rng, [_among(rng, np.array([2, 5]), 3) for _ in range(SNAPSHOTS)]),
    "nodes that leave and return": lambda rng: _present(
        rng, [[v for v in range(NODES) if (v + t) % 3] for t in range(SNAPSHOTS)]
    ),
    "self-loops only": lambda rng: _graph(rng, [np.tile(np.arange(NODES), (2, 1))] * SNAPSHOTS),
    "parallel edges": lambda rng: _graph(rng, [np.tile([[0, 1], [1, 2]], 20)] * SNAPSHOTS),
    "one snapshot": _of_snapshots(1),
    "two snapshots": _of_snapshots(2),
    "three snapshots": _of_snapshots(3),
    "disconnected halves": lambda rng: _graph(
        rng, [np.hstack([_among(rng, np.arange(4)), _among(rng, np.arange(4, 9))]) for _ in range(SNAPSHOTS)]
    ),
    "star": lambda rng: _graph(
        rng, [np.stack([np.zeros(NODES - 1, np.int64), np.arange(1, NODES)])] * SNAPSHOTS, directed=False
    ),
    "complete": lambda rng: _graph(rng, [np.stack(np.nonzero(~np.eye(NODES, dtype=bool)))] * SNAPSHOTS),
    "negative and zero weights": _weighted(lambda rng: rng.choice([-2.0, -0.5, 0.0], EDGES)),
    "huge weights": _weighted(lambda rng: np.full(EDGES, 3e38, np.float32)),
    "tiny and subnormal weights": _weighted(lambda rng: rng.choice(np.array([1e-45, 1e-39], np.float32), EDGES)),
    "constant features": lambda rng: _graph(rng, x=np.full((NODES, 3), 7.0, np.float32)),
    "huge features": lambda rng: _graph(rng, x=rng.choice([-3e38, 3e38], (NODES, 3)).astype(np.float32)),
    "no columns of features": lambda rng: _graph(rng, x=np.empty((NODES, 0), np.float32)),
    "neither features nor labels": lambda rng: _graph(rng, x=None, y=None),
    "one class": lambda rng: _graph(rng, y=np.zeros(NODES, np.int64)),
    "hardly any labels": lambda rng: _graph(rng, y=np.array([0, 1, 2, *[-1] * (NODES - 3)])),
    "no label in training": lambda rng: _graph(
        rng, y=[np.full(NODES, -1) if t < 6 else rng.integers(0, 3, NODES) for t in range(SNAPSHOTS)]
    ),
    "other nodes in the test": lambda rng: _present(
        rng, [range(5) if t < 6 else range(5, 9) for t in range(SNAPSHOTS)]
    ),
    "bipartite and directed, times with long gaps": lambda rng: _graph(
        rng,
        [np.stack([rng.integers(0, 4, EDGES), rng.integers(4, NODES, EDGES)]) for _ in range(SNAPSHOTS)],
        times=[0, 1, 5, 10**6, 10**6 + 1, 10**9, 10**12, 2 * 10**12],
    ),
    "few ids of many": lambda rng: _present(rng, [[0, 700, 70_000]] * SNAPSHOTS, num_nodes=70_001),
    "the same snapshot again and again": lambda rng: _graph(
        rng, [rng.integers(0, NODES, (2, EDGES))] * SNAPSHOTS, directed=False
    ),
}


@_named("grown, with targets and missing ones")
def _grown(rng: np.random.Generator) -> DynamicGraph:
    """Read back from disk, where every snapshot brought a node; labels are numbers, some of them missing."""
    with tempfile.TemporaryDirectory(prefix="strobe-awkward-") as folder:
        labels = PerCell(np.empty(0, np.float32))
        with GrowingGraph.create(Path(folder) / "graph", features=Degrees(log=True), labels=labels) as growing:
            for t in range(SNAPSHOTS):
                y = np.where(rng.random(t + 2) < 0.3, np.nan, rng.normal(size=t + 2))
                growing.append(Edges(*rng.integers(0, t + 2, (2, 6))), num_nodes=t + 2, y=y.astype(np.float32))
        opened = open_graph(Path(folder) / "graph")
        for snapshot in opened:
            del snapshot  # maps every part: the files may go now
        return opened
