"""Signals: measurements on the nodes of a graph, to predict each node's next one.

Features of a snapshot are the measurements of its time, labels those one step later; labels of the last snapshot are
unknown (NaN). The graph is static, or changes with the signal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from strobe.graph.arrays import Array
from strobe.graph.build import Edges, GraphBuilder
from strobe.graph.datasets.dataset import Loader, LoadRequest
from strobe.graph.datasets.folder import open_text
from strobe.graph.datasets.static import read_matrix
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.names import NodeNames
from strobe.io.lazy_import import lazy_import
from strobe.ops.sparse.csr import distinct

if TYPE_CHECKING:
    from pyarrow import csv
else:
    csv = lazy_import("pyarrow.csv")


@dataclass(frozen=True, eq=False, kw_only=True)
class Signal:
    """A signal: features [T, N, F], the measurement to predict [T, N], and edges [E, 2], once or per step."""

    x: Array
    target: Array
    edges: Sequence[Array]
    weights: Sequence[Array] | None
    names: Sequence[int] | Sequence[str] | None = None

    def edges_at(self, t: int, number: Array) -> Edges:
        """Return the edges of step t between renumbered nodes."""
        at = t if len(self.edges) > 1 else 0
        pairs = number[self.edges[at].reshape(-1, 2)]
        return Edges(pairs[:, 0], pairs[:, 1], None if self.weights is None else self.weights[at])


@dataclass(frozen=True, kw_only=True)
class SignalFiles(Loader):
    """Files from which ``read`` makes a signal."""

    read: Callable[[LoadRequest], Signal]

    def load(self, request: LoadRequest) -> DynamicGraph:
        signal = self.read(request)
        steps, num_nodes = signal.target.shape
        order = np.arange(num_nodes) if signal.names is None else np.argsort(np.array(signal.names), kind="stable")
        number = np.argsort(order)  # nodes are numbered in order of their names
        following = np.vstack([signal.target[1:], np.full((1, num_nodes), np.nan)]).astype(np.float32)
        with request.sink() as sink:
            builder = GraphBuilder(sink, num_nodes=num_nodes, weighted=signal.weights is not None)
            for t in range(steps):
                request.report("writing snapshots", t, steps)
                rows = {"x": signal.x[t][order].astype(np.float32), "y": following[t][order]}
                if t and len(signal.edges) == 1:
                    builder.repeat(0, **rows)
                else:
                    builder.add(signal.edges_at(t, number), **rows)
            names = None if signal.names is None else NodeNames.from_names([signal.names[node] for node in order])
            info = {**request.info, **_count_edges(signal, steps), "label_delay": 1}
            return builder.finish(names=names, info=info)


def _count_edges(signal: Signal, steps: int) -> dict[str, Any]:
    rows = np.concatenate([edges.reshape(-1, 2) for edges in signal.edges])
    return {
        "rows": len(rows),
        "distinct_pairs": len(distinct(rows[:, 0] * (rows.max(initial=0) + 1) + rows[:, 1])),
        "first_time": 0,
        "last_time": steps - 1,
    }


def _json(path: Path) -> Any:
    with open_text(path) as file:
        return json.load(file)


def _chickenpox(request: LoadRequest) -> Signal:
    data = _json(request.files["chickenpox.json"])
    cases = np.array(data["FX"])
    return Signal(
        x=cases[:, :, None],
        target=cases,
        edges=[np.array(data["edges"])],
        weights=None,
        names=sorted(data["node_ids"], key=data["node_ids"].__getitem__),
    )


def _pedalme(request: LoadRequest) -> Signal:
    data = _json(request.files["pedalme_london.json"])
    demand = np.array(data["X"])
    weights = [np.array(data["weights"], np.float32)]
    return Signal(x=demand[:, :, None], target=demand, edges=[np.array(data["edges"])], weights=weights)


def _montevideo(request: LoadRequest) -> Signal:
    data = _json(request.files["montevideo_bus.json"])
    stops, links = data["nodes"], data["links"]
    number = {stop["id"]: k for k, stop in enumerate(stops)}
    return Signal(
        x=np.array([stop["X"]["y"] for stop in stops]).T[:, :, None],
        target=np.array([stop["y"] for stop in stops]).T,
        edges=[np.array([[number[link["source"]], number[link["target"]]] for link in links])],
        weights=[np.array([link["weight"] for link in links], np.float32)],
        names=[stop["id"] for stop in stops],
    )


def _metr_la(request: LoadRequest) -> Signal:
    speeds = csv.read_csv(request.files["los_speed.csv"])
    near = read_matrix(request.files["los_adj.csv"])
    speed = np.column_stack([column.to_numpy() for column in speeds.columns])
    edges = np.argwhere(near)
    return Signal(
        x=speed[:, :, None],
        target=speed,
        edges=[edges],
        weights=[near[edges[:, 0], edges[:, 1]].astype(np.float32)],
        names=[int(sensor) for sensor in speeds.column_names],
    )


def _england(request: LoadRequest) -> Signal:
    data = _json(request.files["england_covid.json"])
    cases, moves = np.array(data["y"]), data["edge_mapping"]
    days = [str(t) for t in range(data["time_periods"])]
    return Signal(
        x=cases[:, :, None],
        target=cases,
        edges=[np.array(moves["edge_index"][day]) for day in days],
        weights=[np.array(moves["edge_weight"][day], np.float32) for day in days],
    )


def _tennis(request: LoadRequest) -> Signal:
    [path] = request.files.values()
    data = _json(path)
    steps = [data[str(t)] for t in range(data["time_periods"])]
    return Signal(
        x=np.array([step["X"] for step in steps]),
        target=np.array([step["y"] for step in steps]),
        edges=[np.array(step["edges"], np.int64) for step in steps],
        weights=[np.array(step["weights"], np.float32) for step in steps],
        names=sorted(data["node_ids"], key=data["node_ids"].__getitem__),
    )


READERS = {
    "chickenpox": _chickenpox,
    "pedalme": _pedalme,
    "montevideo_bus": _montevideo,
    "metr_la": _metr_la,
    "england_covid": _england,
    "twitter_tennis": _tennis,
}
"""Readers of signals, by their name in the catalog."""
