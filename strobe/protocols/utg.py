"""UTG's comparison of models of snapshots and of events: weekly snapshots, fixed negatives, MRR.

Huang et al., "UTG: Towards a Unified View of Snapshot and Event Based Models for Temporal Graphs", LoG 2024, and the
authors' code (shenyangHuang/UTG). Week k has the events after k - 1 and up to k weeks since the first event, each pair
once; the first snapshot has only the first event's second. Parts end at quantiles of the snapshots' numbers. Every
directed edge of a target snapshot is ranked among up to 1,000 negatives of its source: up to half of them destinations
that the source had in the training part, the others random. The rank counts ties half; MRR is the mean over edges.

The negatives are the authors': the code that draws them has a seed, and the order of events and of ids is that of the
file. With them, EdgeBank with a time window has the published value.

Different from the authors: our models are trained on the ranking of all nodes, and take the epoch with the best MRR
among all nodes on the validation part; theirs take the epoch with the best validation MRR among the fixed negatives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from time import perf_counter
from typing import Any

import numpy as np

from strobe.graph import DynamicGraph
from strobe.protocols.base import Protocol, ProtocolRequest, ProtocolResult
from strobe.protocols.events import Floats, Ids, read_events
from strobe.protocols.model_names import names_from
from strobe.protocols.snapshot_ranking import WITH_PAIR_FEATURES, as_published
from strobe.protocols.timed_pairs import (
    RULES,
    PairHistory,
    TimedPairs,
    score_pairs,
    snapshots_of_events,
    train_on_links,
)
from strobe.tasks import LinkRanking
from strobe.tasks.metrics import mrr, rank_positives

WEEK = 7 * 24 * 3600
NEGATIVES = 1000
SEED = 42
"""Of the negatives, as in the authors' code."""
WINDOW = 0.15
"""Share of the training time that EdgeBank with a time window remembers."""
SCORED = ("validation", "test")

SETTINGS: Mapping[str, Any] = {"window": 1, "lr": 0.003, "epochs": 30, "patience": 8}
"""Settings of training, a step per snapshot: those of ``strobe.protocols.snapshot_ranking``, not searched for here."""


@dataclass(frozen=True, eq=False, kw_only=True)
class WeeklyEdges:
    """Edges of weekly snapshots, each once, in order of time and of their first event in the file.

    Attributes:
        src, dst: ends, [E]; node ids as in the file.
        week: snapshot of each edge, [E].
    """

    src: Ids
    dst: Ids
    week: Ids

    @classmethod
    def of_events(cls, src: Ids, dst: Ids, time: Floats) -> WeeklyEdges:
        """Cut events into snapshots and drop repetitions."""
        week = np.ceil((time - time[0]) / WEEK).astype(np.int64)
        _, first = np.unique(np.stack([week, src, dst]), axis=1, return_index=True)
        kept = np.sort(first)
        return cls(src=src[kept], dst=dst[kept], week=week[kept])

    @cached_property
    def last_weeks(self) -> tuple[int, int]:
        """The last snapshots of the training and of the validation part."""
        train, validation = np.quantile(np.unique(self.week), [1 - 0.15 - 0.15, 1 - 0.15])
        return ceil(train), ceil(validation)

    def part(self, name: str) -> slice:
        """The edges of a part."""
        ends = (0, *np.searchsorted(self.week, self.last_weeks, side="right").tolist(), len(self.week))
        k = ("train", *SCORED).index(name)
        return slice(ends[k], ends[k + 1])

    @property
    def num_nodes(self) -> int:
        """One more than the largest id."""
        return int(max(self.src.max(), self.dst.max())) + 1

    def graph(self) -> DynamicGraph:
        """The directed graph of all snapshots."""
        return snapshots_of_events(self.src, self.dst, self.week, self.num_nodes)

    @cached_property
    def scored_pairs(self) -> dict[str, TimedPairs]:
        """The pairs of the validation and of the test part: every edge, followed by its negatives."""
        rng, train = np.random.RandomState(SEED), self.part("train")
        num_present = len(np.union1d(self.src, self.dst))
        draw = _NegativeDraw(rng, self.src[train], self.dst[train], self.dst, min(num_present, NEGATIVES))
        return {part: self._list_pairs(part, draw) for part in SCORED}

    def _list_pairs(self, part: str, draw: _NegativeDraw) -> TimedPairs:
        src, dst, week = (each[self.part(part)] for each in (self.src, self.dst, self.week))
        destinations: list[Ids] = []
        for s, d, t in zip(src, dst, week, strict=True):
            negatives = draw(int(s), np.unique(dst[(src == s) & (week == t)]))
            destinations.append(np.concatenate([[d], negatives]))
        size = np.array([len(each) for each in destinations])
        positive = np.zeros(int(size.sum()), bool)
        positive[np.cumsum(size) - size] = True
        ends = {"src": np.repeat(src, size), "dst": np.concatenate(destinations)}
        return TimedPairs(**ends, target=np.repeat(week, size), positive=positive)


class _NegativeDraw:
    """Draws the negatives of one edge after the other, as the authors' code does, from one stream of random numbers."""

    def __init__(self, rng: np.random.RandomState, src: Ids, dst: Ids, all_dst: Ids, number: int) -> None:
        self._rng, self._number = rng, number
        self._all = np.arange(all_dst.min(), all_dst.max() + 1)
        order = np.argsort(src, kind="stable")
        sources, first = np.unique(src[order], return_index=True)
        known = np.split(dst[order], first[1:])
        self._known = {int(s): np.unique(each) for s, each in zip(sources, known, strict=True)}

    def __call__(self, src: int, positives: Ids) -> Ids:
        """Negatives of a source whose edges in the target snapshot are ``positives``: past ones, then random ones."""
        known = self._known.get(src, np.empty(0, np.int64))
        past = np.setdiff1d(known, positives)
        past = self._choose(past, min(self._number // 2, len(past)))
        others = np.setdiff1d(self._all, np.concatenate([positives, known]))
        left = self._number - len(past)
        return np.concatenate([past, others if left > len(others) else self._choose(others, left)])

    def _choose(self, pool: Ids, number: int) -> Ids:
        return self._rng.choice(pool, number, replace=False) if len(pool) else pool


@dataclass(frozen=True, kw_only=True)
class UtgRanking(Protocol):
    """Every edge of a week is ranked among fixed negatives."""

    def read(self, request: ProtocolRequest) -> WeeklyEdges:
        """Read the weekly edges of a request's data set."""
        data = self.choose_data(request.data)
        return WeeklyEdges.of_events(*read_events(data, data_dir=request.data_dir, on_stage=request.on_stage))

    def run(self, request: ProtocolRequest) -> ProtocolResult:
        method = self.choose_model(request.model)
        if method in RULES:
            return next(each for each in self.run_baselines(request) if each.method == method)
        began, edges = perf_counter(), self.read(request)
        graph = edges.graph()
        graph = graph if method.endswith(WITH_PAIR_FEATURES) else as_published(graph)
        settings = dict(SETTINGS) | ({} if request.epochs is None else {"epochs": request.epochs})
        train_end, validation_end = edges.last_weeks
        task = LinkRanking(train=train_end, validation=validation_end - train_end)
        scores, epochs = [], []
        for seed in request.seed_values:
            run = train_on_links(request, graph, method, task, seed, settings)
            scores.append({part: score_pairs(run, edges.scored_pairs[part]) for part in SCORED})
            epochs.append(run.best_epoch)
        return self._result(method, edges, request, scores, settings | {"best_epochs": epochs}, began)

    def run_baselines(self, request: ProtocolRequest) -> list[ProtocolResult]:
        """Rules on the snapshots before the target."""
        request.report("baselines", 0, None)
        began, edges = perf_counter(), self.read(request)
        scores = {part: score_rules(edges, part) for part in SCORED}
        return [
            self._result(name, edges, request, [{part: scores[part][name] for part in SCORED}], {}, began)
            for name in RULES
        ]

    def _result(
        self,
        method: str,
        edges: WeeklyEdges,
        request: ProtocolRequest,
        scores: list[dict[str, Floats]],
        settings: dict[str, Any],
        began: float,
    ) -> ProtocolResult:
        """Build the result from the scores of every seed."""
        found = {
            part: tuple(mean_reciprocal_rank(edges.scored_pairs[part], each[part]) for each in scores)
            for part in SCORED
        }
        sizes = {part: edges.part(part).stop - edges.part(part).start for part in ("train", *SCORED)}
        return ProtocolResult(
            protocol=self.name,
            data=self.choose_data(request.data),
            method=method,
            metric=self.metric,
            seeds=(0,) if method in RULES else request.seed_values,
            validation=found["validation"],
            test=found["test"],
            coverage=1.0,  # every edge is ranked
            settings={"edges": sizes, "last_weeks": list(edges.last_weeks)} | settings,
            seconds=perf_counter() - began,
        )


def mean_reciprocal_rank(pairs: TimedPairs, scores: Floats) -> float:
    """MRR of positives, each followed by its negatives; a tie counts half."""
    return mrr(rank_positives(scores, pairs.positive))


def score_rules(edges: WeeklyEdges, part: str) -> dict[str, Floats]:
    """Scores of a part's pairs by ``RULES``, which read the snapshots before the target."""
    history, pairs = PairHistory(edges.num_nodes), edges.scored_pairs[part]
    duration = WINDOW * (edges.last_weeks[0] - edges.week[0])
    scores: dict[str, list[Floats]] = {name: [] for name in RULES}
    read = 0
    for week in np.unique(pairs.target):
        end = int(np.searchsorted(edges.week, week))
        history.read(edges.src[read:end], edges.dst[read:end], edges.week[read:end].astype(np.float64))
        read, here = end, pairs.target == week
        since = float(edges.week[end - 1] - duration)
        for name, values in history.scores(pairs.src[here], pairs.dst[here], since=since).items():
            scores[name].append(values)
    return {name: np.concatenate(values) for name, values in scores.items()}


_MODELS = names_from("evolvegcn-o")

UTG = UtgRanking(
    name="utg",
    description="UTG's weekly snapshots: rank the destination of every edge among fixed negatives of its source.",
    citation="Huang et al., UTG: Towards a Unified View of Snapshot and Event Based Models for Temporal Graphs, "
    "LoG 2024",
    data_sets=("collegemsg",),
    models=(*(name + WITH_PAIR_FEATURES for name in _MODELS), *_MODELS, *RULES),
    metric="MRR",
    snapshots="weeks since the first event (29), each pair once, with directions",
    split="snapshots up to 20 for training, 21 to 24 for validation, 25 to 28 for the test",
    negatives="up to 1,000 per edge, as the authors' code draws them (seed 42): at most half of them destinations "
    "that the source had in the training part, the others random; rank = 1 + (optimistic + pessimistic) / 2",
    update="all snapshots before the target are read; weights are trained on the training part only. Methods that "
    "end in +pair-features also read the history of the pair; other models read undirected edges, all nodes in "
    "every snapshot, degrees and random signatures",
)
