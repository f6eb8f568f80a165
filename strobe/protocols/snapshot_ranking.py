"""Ranking of links on snapshots: the protocols of EvolveGCN and ROLAND with a fixed split.

``evolvegcn``: Pareja et al., "EvolveGCN: Evolving Graph Convolutional Networks for Dynamic Graphs", AAAI 2020, section
4 and the authors' code (IBM/EvolveGCN). Snapshots begin with the first event; edges have no direction; every node with
an edge in the target snapshot is a query, ranked against all nodes; MRR is the mean over the edges of a node, then over
nodes, then over snapshots, and other edges of the node count in a rank.

``roland-fixed``: You et al., "ROLAND: Graph Learning Framework for Dynamic Graphs", KDD 2022, and the authors' code
(snap-stanford/roland): the same snapshots and metric. Their training goes on in the test part, one snapshot after the
other; here weights are those of the training part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from strobe.graph import DynamicGraph, from_edges
from strobe.graph.datasets import load
from strobe.graph.features import Concatenated, Degrees, RandomSignature
from strobe.graph.ingest import Clock
from strobe.graph.ingest.clock import RegularClock, SnapshotBoundaries, TimeKind
from strobe.protocols.base import Protocol, ProtocolRequest, ProtocolResult, register
from strobe.protocols.model_names import names_from

WITH_PAIR_FEATURES = "+pair-features"
"""Ending of the methods whose decoder also reads the history of the pair and of its ends."""

SIGNATURE = 32
"""Columns of random signatures among the inputs of models without pair features: they stand for one-hot ids."""

SETTINGS: Mapping[str, Any] = {"window": 1, "lr": 0.003, "epochs": 30, "patience": 8}
"""Settings of training, a step per snapshot; chosen on validation snapshots, equal for all data sets and models."""


class Cut(NamedTuple):
    """Snapshots of a data set.

    Attributes:
        seconds: length of a snapshot; None for those of the data set.
        train, validation: snapshots that are read to train and to validate.
        snapshots: how many snapshots there are, the first ones of the data set.
    """

    seconds: int | None
    train: int
    validation: int
    snapshots: int


CUTS: Mapping[str, Cut] = {
    "bitcoin_otc": Cut(1_200_000, 95, 14, 138),
    "bitcoin_alpha": Cut(1_200_000, 95, 13, 137),
    "collegemsg": Cut(190_080, 62, 9, 89),
    "as733": Cut(None, 69, 10, 100),
}
"""As in the authors' configurations; the rest is the test part."""


@dataclass(frozen=True)
class EveryFromFirst(RegularClock):
    """Snapshots of equal length in seconds; the first begins with the first event."""

    length: float

    def between(self, low: float, high: float, kind: TimeKind, max_snapshots: int = 0) -> SnapshotBoundaries:
        del kind, max_snapshots
        low = float(np.floor(low))
        starts = [low + k * self.length for k in range(int((high - low) // self.length) + 1)]
        return SnapshotBoundaries([str(int(start)) for start in starts], starts, starts[-1] + self.length)


@dataclass(frozen=True, kw_only=True)
class SnapshotRanking(Protocol):
    """Every node with edges in the next snapshot ranks all nodes."""

    def read(self, request: ProtocolRequest) -> DynamicGraph:
        """Read the snapshots of a request's data set, with the directions of edges where it has any; without ratings and
        numbers of messages."""
        name = self.choose_data(request.data)
        cut = CUTS[name]
        clock: Clock | None = None if cut.seconds is None else EveryFromFirst(cut.seconds)
        graph = load(name, data_dir=request.data_dir, clock=clock, on_stage=request.on_stage)
        return _first_snapshots(graph, cut.snapshots)

    def run(self, request: ProtocolRequest) -> ProtocolResult:
        from strobe.api import train
        from strobe.protocols.epoch_progress import EpochProgress

        method, began = self.choose_model(request.model), perf_counter()
        graph = self.read(request)
        with_features = method.endswith(WITH_PAIR_FEATURES)
        graph = graph if with_features else as_published(graph)
        settings = dict(SETTINGS) | ({} if request.epochs is None else {"epochs": request.epochs})
        runs = []
        for seed in range(request.seeds):
            stage = f"training, seed {seed + 1} of {request.seeds}: epochs"
            runs.append(
                train(
                    graph,
                    method.removesuffix(WITH_PAIR_FEATURES),
                    self.task(request, with_features=with_features),
                    seed=seed,
                    device=request.device or "cpu",
                    progress=EpochProgress(request, stage, settings["epochs"]),
                    **settings,
                )
            )
        found = {part: [getattr(run, part) for run in runs] for part in ("validation", "test")}
        return ProtocolResult(
            protocol=self.name,
            data=self.choose_data(request.data),
            method=method,
            metric=self.metric,
            seeds=tuple(range(request.seeds)),
            validation=tuple(each["source_mrr"] for each in found["validation"]),
            test=tuple(each["source_mrr"] for each in found["test"]),
            coverage=min(each["coverage"] for each in found["test"]),
            settings=settings
            | {
                "edges": found["test"][0]["edges"],
                "map": [each["map"] for each in found["test"]],
                "best_mrr": [each["best_mrr"] for each in found["test"]],
                "start": [run.baselines["test"].get("history", {}).get("source_mrr") for run in runs],
                "best_epochs": [run.best_epoch for run in runs],
            },
            seconds=perf_counter() - began,
        )

    def run_baselines(self, request: ProtocolRequest) -> list[ProtocolResult]:
        """Rules on the graph without directions, which is what is asked."""
        request.report("baselines", 0, None)
        began, graph = perf_counter(), _undirected(self.read(request))
        problem = self.task(request, with_features=False).bind(graph)
        found = {part: problem.baselines(part) for part in ("validation", "test")}
        seconds = perf_counter() - began
        return [
            ProtocolResult(
                protocol=self.name,
                data=self.choose_data(request.data),
                method=name.replace(" ", "-"),
                metric=self.metric,
                seeds=(0,),
                validation=(found["validation"][name]["source_mrr"],),
                test=(metrics["source_mrr"],),
                coverage=1.0,  # every edge is ranked
                settings={"map": metrics["map"], "best_mrr": metrics["best_mrr"]},
                seconds=seconds,
            )
            for name, metrics in found["test"].items()
        ]

    def task(self, request: ProtocolRequest, *, with_features: bool) -> Any:
        """The task of a request's data set."""
        from strobe.tasks import LinkRanking

        cut = CUTS[self.choose_data(request.data)]
        return LinkRanking(
            train=cut.train,
            validation=cut.validation,
            both_directions=True,
            metric="source_mrr",
            pair_features=with_features,
            from_history=with_features,
        )


def as_published(graph: DynamicGraph) -> DynamicGraph:
    """The graph as the published models read it: edges without direction, all nodes in every snapshot, and degrees and
    signatures as features."""
    whole = _undirected(graph, all_nodes=True)
    return whole.with_features(Concatenated((Degrees(log=True), RandomSignature(SIGNATURE))))


def _first_snapshots(graph: DynamicGraph, count: int) -> DynamicGraph:
    """The first snapshots of a graph, with the nodes that they have, without weights."""
    edges = [_edges(graph, t) for t in range(count)]
    nodes = np.unique(np.concatenate([each.ravel() for each in edges]))
    return from_edges(
        [np.searchsorted(nodes, each) for each in edges],
        num_nodes=len(nodes),
        nodes=[np.searchsorted(nodes, np.unique(each)) for each in edges],
        times=[str(graph.times[t]) for t in range(count)],
        directed=graph.directed,
    )


def _undirected(graph: DynamicGraph, *, all_nodes: bool = False) -> DynamicGraph:
    edges = [_edges(graph, t) for t in range(len(graph))]
    present = None if all_nodes else [graph[t].nodes for t in range(len(graph))]
    return from_edges(edges, num_nodes=graph.num_nodes, nodes=present, directed=False)


def _edges(graph: DynamicGraph, t: int) -> np.ndarray[Any, Any]:
    """Edges of a snapshot as node ids, without self-loops, [2, E]."""
    src, dst, _ = graph[t].edges()
    keep = src != dst
    return np.stack([src[keep], dst[keep]])


_WORDS: Mapping[str, Any] = {
    "metric": "source MRR",
    "snapshots": "1,200,000 s (bitcoin_otc, bitcoin_alpha), 190,080 s (collegemsg), the first 100 days (as733)",
    "split": "snapshots read to train / validate / test: 95 / 14 / 28 (bitcoin_otc), 95 / 13 / 28 (bitcoin_alpha), "
    "62 / 9 / 17 (collegemsg), 69 / 10 / 20 (as733)",
    "negatives": "all other nodes; edges have no direction: both ends of an edge are asked; MRR is the mean over the "
    "edges of a node, then over nodes, then over snapshots",
    "update": "snapshots up to the one before the target are read; weights are trained on the training part. Methods "
    "that end in +pair-features also read the history of the pair, with directions, and start from a regression on it",
}

_EVOLVEGCN = names_from("evolvegcn-o")
_ROLAND = names_from("roland")

EVOLVEGCN = register(
    SnapshotRanking(
        name="evolvegcn",
        description="EvolveGCN's link prediction: every node ranks all nodes as its neighbors in the next snapshot.",
        citation="Pareja et al., EvolveGCN: Evolving Graph Convolutional Networks for Dynamic Graphs, AAAI 2020",
        data_sets=tuple(CUTS),
        models=(*_EVOLVEGCN, *(name + WITH_PAIR_FEATURES for name in _EVOLVEGCN)),
        **_WORDS,
    )
)

ROLAND_FIXED = register(
    SnapshotRanking(
        name="roland-fixed",
        description="ROLAND's fixed split: every node ranks all nodes as its neighbors in the next snapshot.",
        citation="You et al., ROLAND: Graph Learning Framework for Dynamic Graphs, KDD 2022",
        data_sets=("bitcoin_otc", "bitcoin_alpha", "collegemsg"),
        models=(*(name + WITH_PAIR_FEATURES for name in _ROLAND), *_ROLAND),
        **_WORDS,
    )
)
