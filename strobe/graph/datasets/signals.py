"""Measurements on the nodes of a graph, step by step: predict each node's next one.

A snapshot's features are what is measured at its time, its labels the measurement one step later; those of the
last snapshot are not known (NaN). The graph is one for all time, or changes with the signal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import csv

from strobe.graph.arrays import Array
from strobe.graph.build import Edges, GraphBuilder
from strobe.graph.datasets.dataset import DataSet, File, Loader, Request
from strobe.graph.datasets.folder import open_text
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.names import NodeNames

_PYGT = "https://raw.githubusercontent.com/benedekrozemberczki/pytorch_geometric_temporal/master/dataset"


@dataclass(frozen=True, eq=False, kw_only=True)
class Signal:
    """A signal: features [T, N, F], the measurement to predict [T, N], and edges [E, 2], once or per step."""

    x: Array
    measured: Array
    edges: Sequence[Array]
    weights: Sequence[Array] | None
    names: Sequence[int] | Sequence[str] | None = None

    def edges_at(self, t: int, number: Array) -> Edges:
        """The edges of step t between renumbered nodes."""
        at = t if len(self.edges) > 1 else 0
        pairs = number[self.edges[at].reshape(-1, 2)]
        return Edges(pairs[:, 0], pairs[:, 1], None if self.weights is None else self.weights[at])


@dataclass(frozen=True, kw_only=True)
class SignalFiles(Loader):
    """Files that ``read`` makes a signal of."""

    read: Callable[[Request], Signal]

    def load(self, request: Request) -> DynamicGraph:
        signal = self.read(request)
        steps, num_nodes = signal.measured.shape
        order = np.arange(num_nodes) if signal.names is None else np.argsort(np.array(signal.names), kind="stable")
        number = np.argsort(order)  # nodes are numbered in order of their names
        following = np.vstack([signal.measured[1:], np.full((1, num_nodes), np.nan)]).astype(np.float32)
        with request.sink() as sink:
            builder = GraphBuilder(sink, num_nodes=num_nodes, weighted=signal.weights is not None)
            for t in range(steps):
                request.report("writing snapshots", t, steps)
                x = signal.x[t][order].astype(np.float32)
                builder.add(signal.edges_at(t, number), x=x, y=following[t][order])
            names = None if signal.names is None else NodeNames.of([signal.names[node] for node in order])
            info = {**request.info, **_counted(signal, steps), "label_delay": 1}
            return builder.finish(names=names, info=info)


def _counted(signal: Signal, steps: int) -> dict[str, Any]:
    rows = np.concatenate([edges.reshape(-1, 2) for edges in signal.edges])
    return {
        "rows": len(rows),
        "distinct_pairs": len(np.unique(rows, axis=0)),
        "first_time": 0,
        "last_time": steps - 1,
    }


def _json(path: Path) -> Any:
    with open_text(path) as file:
        return json.load(file)


def _chickenpox(request: Request) -> Signal:
    data = _json(request.files["chickenpox.json"])
    cases = np.array(data["FX"])
    return Signal(
        x=cases[:, :, None],
        measured=cases,
        edges=[np.array(data["edges"])],
        weights=None,
        names=sorted(data["node_ids"], key=data["node_ids"].__getitem__),
    )


def _pedalme(request: Request) -> Signal:
    data = _json(request.files["pedalme_london.json"])
    demand = np.array(data["X"])
    weights = [np.array(data["weights"], np.float32)]
    return Signal(x=demand[:, :, None], measured=demand, edges=[np.array(data["edges"])], weights=weights)


def _montevideo(request: Request) -> Signal:
    data = _json(request.files["montevideo_bus.json"])
    stops, links = data["nodes"], data["links"]
    number = {stop["id"]: k for k, stop in enumerate(stops)}
    return Signal(
        x=np.array([stop["X"]["y"] for stop in stops]).T[:, :, None],
        measured=np.array([stop["y"] for stop in stops]).T,
        edges=[np.array([[number[link["source"]], number[link["target"]]] for link in links])],
        weights=[np.array([link["weight"] for link in links], np.float32)],
        names=[stop["id"] for stop in stops],
    )


def _metr_la(request: Request) -> Signal:
    speeds = csv.read_csv(request.files["los_speed.csv"])
    unnamed = csv.ReadOptions(autogenerate_column_names=True)
    adjacency = csv.read_csv(request.files["los_adj.csv"], read_options=unnamed)
    near = np.column_stack([column.to_numpy() for column in adjacency.columns])
    speed = np.column_stack([column.to_numpy() for column in speeds.columns])
    edges = np.argwhere(near)
    return Signal(
        x=speed[:, :, None],
        measured=speed,
        edges=[edges],
        weights=[near[edges[:, 0], edges[:, 1]].astype(np.float32)],
        names=[int(sensor) for sensor in speeds.column_names],
    )


def _england(request: Request) -> Signal:
    data = _json(request.files["england_covid.json"])
    cases, moves = np.array(data["y"]), data["edge_mapping"]
    days = [str(t) for t in range(data["time_periods"])]
    return Signal(
        x=cases[:, :, None],
        measured=cases,
        edges=[np.array(moves["edge_index"][day]) for day in days],
        weights=[np.array(moves["edge_weight"][day], np.float32) for day in days],
    )


def _tennis(request: Request) -> Signal:
    [path] = request.files.values()
    data = _json(path)
    steps = [data[str(t)] for t in range(data["time_periods"])]
    return Signal(
        x=np.array([step["X"] for step in steps]),
        measured=np.array([step["y"] for step in steps]),
        edges=[np.array(step["edges"], np.int64) for step in steps],
        weights=[np.array(step["weights"], np.float32) for step in steps],
        names=sorted(data["node_ids"], key=data["node_ids"].__getitem__),
    )


def _set(
    name: str,
    title: str,
    files: Sequence[str],
    read: Callable[[Request], Signal],
    counts: tuple[int, int, int],
    **of: str,
) -> DataSet:
    nodes, edges, snapshots = counts
    urls = {path: (f"{_PYGT}/{path}",) if path.endswith(".json") else () for path in files}
    return DataSet(
        name=name,
        title=title,
        tasks=("node regression",),
        source=of.get("source", "https://github.com/benedekrozemberczki/pytorch_geometric_temporal"),
        citation=of["citation"],
        licence=of.get("licence", "MIT"),
        files=tuple(File(path=path, urls=urls[path]) for path in files),
        loader=SignalFiles(read=read),
        nodes=nodes,
        edges=edges,
        snapshots=snapshots,
        folder=of.get("folder", ""),
    )


_TENNIS = {"citation": "Béres, Pálovics, Oláh and Benczúr, Applied Network Science 2018", "folder": "twitter_tennis"}

SETS: tuple[DataSet, ...] = (
    _set(
        "chickenpox",
        "Chickenpox in Hungarian counties, by week",
        ["chickenpox.json"],
        _chickenpox,
        (20, 102, 521),
        citation="Rozemberczki et al., 2021",
    ),
    _set(
        "pedalme",
        "Bicycle deliveries in London, by week",
        ["pedalme_london.json"],
        _pedalme,
        (15, 225, 35),
        citation="Rozemberczki et al. (PyTorch Geometric Temporal), CIKM 2021",
    ),
    _set(
        "montevideo_bus",
        "Passengers at bus stops of Montevideo, by hour",
        ["montevideo_bus.json"],
        _montevideo,
        (675, 690, 744),
        citation="Rozemberczki et al. (PyTorch Geometric Temporal), CIKM 2021",
    ),
    _set(
        "metr_la_week",
        "Speeds on Los Angeles roads, one week by 5 minutes",
        ["los_speed.csv", "los_adj.csv"],
        _metr_la,
        (207, 2833, 2016),
        source="https://github.com/lehaifeng/T-GCN",
        citation="Zhao et al. (T-GCN), IEEE T-ITS 2020",
        licence="none stated",
    ),
    _set(
        "england_covid",
        "Covid cases and movements in England, by day",
        ["england_covid.json"],
        _england,
        (129, 82529, 61),
        citation="Panagopoulos, Nikolentzos and Vazirgiannis, AAAI 2021",
    ),
    _set(
        "twitter_tennis_rg17",
        "Mentions on Twitter, Roland-Garros 2017, by hour",
        ["twitter_tennis_rg17.json"],
        _tennis,
        (1000, 40839, 120),
        **_TENNIS,
    ),
    _set(
        "twitter_tennis_uo17",
        "Mentions on Twitter, US Open 2017, by hour",
        ["twitter_tennis_uo17.json"],
        _tennis,
        (1000, 43387, 112),
        **_TENNIS,
    ),
)
