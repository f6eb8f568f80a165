"""Ranking of links on snapshots: the protocols of EvolveGCN and ROLAND with a fixed split.

``evolvegcn``: Pareja et al., "EvolveGCN: Evolving Graph Convolutional Networks for Dynamic Graphs", AAAI 2020, section
4 and the authors' code (IBM/EvolveGCN). Snapshots begin with the first event; edges have no direction; every node with
an edge in the target snapshot is a query, ranked against all nodes; MRR is the mean over the edges of a node, then over
nodes, then over snapshots, and other edges of the node count in a rank.

``roland-fixed``: You et al., "ROLAND: Graph Learning Framework for Dynamic Graphs", KDD 2022, and the authors' code
(snap-stanford/roland): the same snapshots and metric. Their training goes on in the test part, one snapshot after the
other, as that of methods that end in +live does here; weights of other methods are those of the training part.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from strobe.api import train, train_online
from strobe.graph import DynamicGraph, from_edges
from strobe.graph.datasets import load
from strobe.graph.features import Concatenated, Degrees, RandomSignature
from strobe.graph.ingest import Clock
from strobe.graph.ingest.clock import RegularClock, SnapshotBoundaries, TimeKind
from strobe.protocols.base import Protocol, ProtocolRequest, ProtocolResult, baseline_name
from strobe.protocols.model_names import names_from
from strobe.protocols.training_progress import ReportedEpochs
from strobe.tasks import LinkRanking

SIGNATURE = 32
"""Columns of random signatures among the inputs of other models without pair features."""


@dataclass(frozen=True, kw_only=True)
class MethodSettings:
    """What a method is trained with.

    Attributes:
        training: settings of training, a step per snapshot.
        signature: columns of random signatures, which with degrees are the features; 0: the features of the graph.
        model: options of the model.
        task: options of the task.
    """

    training: Mapping[str, Any]
    signature: int
    model: Mapping[str, Any] = field(default_factory=dict)
    task: Mapping[str, Any] = field(default_factory=dict)

    def with_epochs(self, epochs: int) -> MethodSettings:
        return replace(self, training={**self.training, "epochs": epochs})

    def to_json(self) -> dict[str, Any]:
        """All of them by name, as results keep them."""
        return {**self.training, **self.model, **self.task, "signature": self.signature}


EVOLVEGCN_O = MethodSettings(
    signature=256,
    training={"window": 1, "lr": 0.001, "epochs": 40, "patience": 12},
    model={"hidden": 64, "lift": False, "skip": True},
)
"""Equal for all data sets. Chosen by validation, with one seed, among signatures of 0, 32, 128 and 256 columns, one-hot
degrees, ``lift``, ``skip``, two layers, learning rates and windows."""

MAX_PAIRS: Mapping[str, int] = {"as733": 1_000}
"""Positives of a snapshot in an epoch, by data set: those of as733 have 12,000, which cost ten times as much."""


def evolvegcn_o(data: str) -> MethodSettings:
    """The settings for a data set."""
    if data not in MAX_PAIRS:
        return EVOLVEGCN_O
    return replace(EVOLVEGCN_O, task={"max_pairs": MAX_PAIRS[data]})


WITH_PAIR_FEATURES = "+pair-features"
"""Ending of the methods whose decoder also reads the history of the pair and of its ends."""

LIVE = "+live"
"""Ending of the methods whose weights are also updated in the test part, after each snapshot was scored."""

LIVE_SETTINGS: Mapping[str, Any] = {
    "window": 1,
    "lr": 0.003,
    "steps_per_snapshot": 5,
    "replay": 4,
    "replay_memory": 64,
}
"""Settings of training while snapshots arrive. With earlier snapshots in every step both bitcoin sets have higher
validation values than with the newest alone, for any number of steps; 10 steps, or 8 earlier snapshots, change little.
"""

SETTINGS: Mapping[str, Any] = {"window": 1, "lr": 0.003, "epochs": 30, "patience": 8}
"""Settings of training, a step per snapshot, equal for all data sets and all models but ``evolvegcn-o``. Three learning
rates were within noise of each other on the validation snapshots of both bitcoin sets."""


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
        """Read the snapshots of a request's data set, with directions of edges where it has any, without ratings and
        numbers of messages."""
        name = self.choose_data(request.data)
        cut = CUTS[name]
        clock: Clock | None = None if cut.seconds is None else EveryFromFirst(cut.seconds)
        graph = load(name, data_dir=request.data_dir, clock=clock, on_stage=request.on_stage)
        return plain_snapshots(graph[: cut.snapshots])

    def run(self, request: ProtocolRequest) -> ProtocolResult:
        method, began = self.choose_model(request.model), perf_counter()
        graph = self.read(request)
        signature = self._settings(request, method).signature
        graph = as_published(graph, signature) if signature else graph
        run = self._run_live if method.endswith(LIVE) else self._run_fixed
        found = [run(request, graph, method, seed) for seed in request.seed_values]
        return ProtocolResult(
            protocol=self.name,
            data=self.choose_data(request.data),
            method=method,
            metric=self.metric,
            seeds=request.seed_values,
            validation=tuple(each.validation["source_mrr"] for each in found),
            test=tuple(each.test["source_mrr"] for each in found),
            coverage=min(each.test["coverage"] for each in found),
            settings={
                **found[0].settings,
                **{name: [each.test[name] for each in found] for name in ("map", "best_mrr")},
                "start": [each.start for each in found],
                "best_epochs": [each.best_epoch for each in found],
            },
            seconds=perf_counter() - began,
        )

    def _run_fixed(self, request: ProtocolRequest, graph: DynamicGraph, method: str, seed: int) -> _SeedResult:
        """Train on the training part, and score the weights of the best validation epoch."""
        settings = self._settings(request, method)
        run = train(
            graph,
            method.removesuffix(WITH_PAIR_FEATURES),
            replace(self.task(request, with_features=WITH_PAIR_FEATURES in method), **settings.task),
            seed=seed,
            device=request.device or "cpu",
            progress=ReportedEpochs(request, f"training, seed {seed}: epochs"),
            model_options=settings.model,
            **settings.training,
        )
        start = run.baselines["test"].get("history", {}).get("source_mrr")
        return _SeedResult(run.validation, run.test, settings.to_json(), start, run.best_epoch)

    def _settings(self, request: ProtocolRequest, method: str) -> MethodSettings:
        """The settings of a method whose weights are those of the training part."""
        if method == "evolvegcn-o":
            found = evolvegcn_o(self.choose_data(request.data))
        else:
            found = MethodSettings(training=SETTINGS, signature=0 if WITH_PAIR_FEATURES in method else SIGNATURE)
        return found if request.epochs is None else found.with_epochs(request.epochs)

    def _run_live(self, request: ProtocolRequest, graph: DynamicGraph, method: str, seed: int) -> _SeedResult:
        """Train on every snapshot after it was scored; the metrics are those of the test part's snapshots."""
        settings = dict(LIVE_SETTINGS) | ({} if request.epochs is None else {"steps_per_snapshot": request.epochs})
        model = method.removesuffix(LIVE)
        result = train_online(
            graph,
            model.removesuffix(WITH_PAIR_FEATURES),
            _live_task(self.task(request, with_features=WITH_PAIR_FEATURES in model)),
            plan="relay",
            seed=seed,
            device=request.device or "cpu",
            fit_snapshots=4,
            progress=ReportedEpochs(request, f"training, seed {seed}: snapshots", len(graph) - 1),
            **settings,
        )
        cut = CUTS[self.choose_data(request.data)]
        lines = [line["validation"] for line in result.evaluated]
        test = len(graph) - 1 - cut.train - cut.validation
        return _SeedResult(_means(lines[-test - cut.validation : -test]), _means(lines[-test:]), settings)

    def run_baselines(self, request: ProtocolRequest) -> list[ProtocolResult]:
        """Rules on the undirected graph, whose edges are the positives."""
        request.report("baselines", 0, None)
        began, graph = perf_counter(), _undirected(self.read(request))
        problem = self.task(request, with_features=False).bind(graph)
        found = {part: problem.baselines(part) for part in ("validation", "test")}
        seconds = perf_counter() - began
        return [
            ProtocolResult(
                protocol=self.name,
                data=self.choose_data(request.data),
                method=baseline_name(name),
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

    def task(self, request: ProtocolRequest, *, with_features: bool) -> LinkRanking:
        """The task of a request's data set."""
        cut = CUTS[self.choose_data(request.data)]
        return LinkRanking(
            train=cut.train,
            validation=cut.validation,
            both_directions=True,
            metric="source_mrr",
            pair_features=with_features,
            from_history=with_features,
        )


@dataclass(frozen=True)
class _SeedResult:
    """Metrics of one seed, and what it was trained with."""

    validation: Mapping[str, float]
    test: Mapping[str, float]
    settings: Mapping[str, Any]
    start: float | None = None
    best_epoch: int | None = None


def _live_task(task: LinkRanking) -> LinkRanking:
    """The task of an online run: the few snapshots it begins with are split by shares, and no regression is fitted."""
    return replace(task, train=LinkRanking.train, validation=LinkRanking.validation, from_history=False)


def _means(lines: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: statistics.fmean(line[name] for line in lines) for name in lines[0]}


def as_published(graph: DynamicGraph, signature: int = SIGNATURE) -> DynamicGraph:
    """The graph as the published models read it: edges without direction, all nodes in every snapshot, and degrees and
    signatures of ``signature`` columns as features."""
    whole = _undirected(graph, all_nodes=True)
    return whole.with_features(Concatenated((Degrees(log=True), RandomSignature(signature))))


def plain_snapshots(graph: DynamicGraph) -> DynamicGraph:
    """The snapshots that have edges, and the nodes of these edges, without weights and self-loops."""
    edges = [_edges(graph, t) for t in range(len(graph))]
    times = [t for t, each in enumerate(edges) if each.shape[1]]
    nodes = np.unique(np.concatenate([edges[t].ravel() for t in times]))
    return from_edges(
        [np.searchsorted(nodes, edges[t]) for t in times],
        num_nodes=len(nodes),
        nodes=[np.searchsorted(nodes, np.unique(edges[t])) for t in times],
        times=[str(graph.times[t]) for t in times],
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


def _words(data_sets: Sequence[str]) -> dict[str, Any]:
    """What the protocols fix on some data sets, in words."""
    cuts = {name: CUTS[name] for name in data_sets}
    lengths = {name: "1 day" if cut.seconds is None else f"{cut.seconds:,} s" for name, cut in cuts.items()}
    parts = {
        name: (cut.train, cut.validation, cut.snapshots - 1 - cut.train - cut.validation) for name, cut in cuts.items()
    }
    return {
        "data_sets": tuple(data_sets),
        "metric": "source MRR",
        "snapshots": "; ".join(f"{name}: {cuts[name].snapshots} of {length}" for name, length in lengths.items()),
        "split": "snapshots read to train / validate / test: "
        + "; ".join(f"{name}: {' / '.join(map(str, sizes))}" for name, sizes in parts.items()),
        "negatives": "all other nodes. Edges have no direction: both ends of an edge rank all nodes. MRR is the mean "
        "over the edges of a node, then over nodes, then over snapshots",
    }


_UPDATE = (
    "snapshots up to the one before the target are read; weights are trained on the training part{more}. Methods with "
    "+pair-features also read the history of the pair, with directions, and start from a regression on it"
)

_EVOLVEGCN = names_from("evolvegcn-o")
_ROLAND = names_from("roland")

EVOLVEGCN = SnapshotRanking(
    name="evolvegcn",
    description="EvolveGCN's link prediction: every node ranks all nodes as its neighbors in the next snapshot.",
    citation="Pareja et al., EvolveGCN: Evolving Graph Convolutional Networks for Dynamic Graphs, AAAI 2020",
    models=(*_EVOLVEGCN, *(name + WITH_PAIR_FEATURES for name in _EVOLVEGCN)),
    update=_UPDATE.format(more=""),
    **_words(tuple(CUTS)),
)

ROLAND_FIXED = SnapshotRanking(
    name="roland-fixed",
    description="ROLAND's fixed split: every node ranks all nodes as its neighbors in the next snapshot.",
    citation="You et al., ROLAND: Graph Learning Framework for Dynamic Graphs, KDD 2022",
    models=(
        *(name + WITH_PAIR_FEATURES for name in _ROLAND),
        *(name + WITH_PAIR_FEATURES + LIVE for name in _ROLAND),
        *_ROLAND,
        *(name + LIVE for name in _ROLAND),
    ),
    update=_UPDATE.format(more=", and by methods that end in +live also on every snapshot after it was scored"),
    epochs="most passes over the training part; of methods that end in +live, steps on each snapshot",
    **_words(("bitcoin_otc", "bitcoin_alpha", "collegemsg")),
)
