"""ROLAND's live update: predict the next snapshot, then train on it, from the first snapshot to the last.

You et al., "ROLAND: Graph Learning Framework for Dynamic Graphs", KDD 2022, section 4, and the authors' code
(snap-stanford/roland). For every source of the next snapshot the best of its edges is ranked among 1,000 sampled nodes;
MRR is the mean over sources, then over snapshots. Different here: all edges of a snapshot are scored (the authors' code
scores a random part, a tenth in its example, and trains on another), the sources of a snapshot share their negatives,
and ties count half.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from strobe.api import train_online
from strobe.engine.online.result import OnlineResult
from strobe.graph import DynamicGraph
from strobe.graph.datasets import load
from strobe.graph.ingest import Calendar
from strobe.protocols.base import Protocol, ProtocolRequest, ProtocolResult, baseline_name
from strobe.protocols.model_names import names_from
from strobe.protocols.snapshot_ranking import WITH_PAIR_FEATURES, plain_snapshots
from strobe.protocols.training_progress import ReportedEpochs
from strobe.tasks import LinkRanking

NEGATIVES = 1000

FIT_SNAPSHOTS = 4
"""Snapshots that scales are fitted to; predictions begin with the last of them."""

SETTINGS: Mapping[str, Any] = {"window": 1, "lr": 0.003, "steps_per_snapshot": 5}
"""Settings of training, equal for all sets and models; the first that were tried, not searched for."""


@dataclass(frozen=True, kw_only=True)
class LiveUpdate(Protocol):
    """Every snapshot is predicted, scored, then trained on."""

    def read(self, request: ProtocolRequest) -> DynamicGraph:
        """Read the weeks (the days of as733) that have edges."""
        name = self.choose_data(request.data)
        clock = None if name == "as733" else Calendar("week")
        return plain_snapshots(load(name, data_dir=request.data_dir, clock=clock, on_stage=request.on_stage))

    def run(self, request: ProtocolRequest) -> ProtocolResult:
        method, graph, began = self.choose_model(request.model), self.read(request), perf_counter()
        steps = {} if request.epochs is None else {"steps_per_snapshot": request.epochs}
        settings = dict(SETTINGS) | steps
        runs = [self._run(request, graph, method, seed, settings) for seed in request.seed_values]
        halves = [_halves([line["validation"]["best_mrr"] for line in run.evaluated]) for run in runs]
        rules: dict[str, list[float]] = {}
        for line in runs[0].evaluated:
            for name, metrics in line["baselines"].items():
                rules.setdefault(name, []).append(metrics["best_mrr"])
        return ProtocolResult(
            protocol=self.name,
            data=self.choose_data(request.data),
            method=method,
            metric=self.metric,
            seeds=request.seed_values,
            validation=tuple(first for first, _ in halves),
            test=tuple(run.metrics["best_mrr"] for run in runs),
            coverage=min(line["validation"]["coverage"] for run in runs for line in run.evaluated),
            settings=settings
            | {
                "snapshots": len(graph),
                "scored": len(runs[0].evaluated),
                "second_half": [second for _, second in halves],
                "rules": {name: statistics.fmean(values) for name, values in rules.items()},
            },
            seconds=perf_counter() - began,
        )

    def run_baselines(self, request: ProtocolRequest) -> list[ProtocolResult]:
        """The task's rules, which rank the same candidates as a model with the first seed."""
        began, graph = perf_counter(), self.read(request)
        task = _task(with_features=False)
        problem = task.rebind(task.bind(graph[:FIT_SNAPSHOTS], seed=request.first_seed), graph)
        lines, times = [], range(FIT_SNAPSHOTS - 1, len(graph) - 1)
        for t in times:
            request.report("baselines: snapshots", t - times.start, len(times))
            lines.append(problem.with_online_split(t).baselines("validation"))
        results = []
        for name in lines[0]:
            values = [line[name]["best_mrr"] for line in lines]
            first, second = _halves(values)
            results.append(
                ProtocolResult(
                    protocol=self.name,
                    data=self.choose_data(request.data),
                    method=baseline_name(name),
                    metric=self.metric,
                    seeds=(0,),
                    validation=(first,),
                    test=(statistics.fmean(values),),
                    coverage=1.0,  # every edge is ranked
                    settings={"scored": len(values), "second_half": [second]},
                    seconds=perf_counter() - began,
                )
            )
        return results

    def _run(
        self, request: ProtocolRequest, graph: DynamicGraph, method: str, seed: int, settings: dict[str, Any]
    ) -> OnlineResult:
        stage = f"seed {seed}: snapshots"
        return train_online(
            graph,
            method.removesuffix(WITH_PAIR_FEATURES),
            _task(with_features=method.endswith(WITH_PAIR_FEATURES)),
            plan="relay",
            seed=seed,
            device=request.device or "cpu",
            fit_snapshots=FIT_SNAPSHOTS,
            progress=ReportedEpochs(request, stage, len(graph) - 1),
            deterministic=True,
            **settings,
        )


def _task(*, with_features: bool) -> LinkRanking:
    return LinkRanking(eval_negatives=NEGATIVES, metric="best_mrr", from_history=False, pair_features=with_features)


def _halves(values: Sequence[float]) -> tuple[float, float]:
    """The means over the first and over the second half of the scored snapshots."""
    middle = len(values) // 2
    return statistics.fmean(values[:middle] or values), statistics.fmean(values[middle:])


_MODELS = names_from("roland")

LIVE = LiveUpdate(
    name="roland-live",
    description="ROLAND's live update: predict the next snapshot's links, then train on it, from first to last.",
    citation="You et al., ROLAND: Graph Learning Framework for Dynamic Graphs, KDD 2022",
    data_sets=("bitcoin_otc", "bitcoin_alpha", "collegemsg", "as733"),
    models=(*(name + WITH_PAIR_FEATURES for name in _MODELS), *_MODELS),
    metric="best MRR",
    snapshots="weeks with edges (bitcoin_otc, bitcoin_alpha, collegemsg), days (as733)",
    split="none: every snapshot from the fifth on is scored before it is trained on; the validation column is the "
    "first half of them",
    negatives=f"{NEGATIVES:,} nodes per snapshot, uniform, without the source's own edges; the best edge of each "
    "source is ranked, ties count half",
    update="all snapshots before the target are read and trained on, by 5 steps each, from the states after "
    "the snapshot before. Methods that end in +pair-features also read the history of the pair",
    epochs="optimizer steps on each snapshot",
)
