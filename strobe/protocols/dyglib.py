"""DyGLib's link prediction: is an event of a later part one, or a negative? AP and AUC of batches of 200 events.

Yu et al., "Towards Better Dynamic Graph Learning: New Architecture and Unified Library", NeurIPS 2023, and the authors'
code (yule-BUAA/DyGLib). Each event has one negative: random, historical or inductive
(``strobe.protocols.dyglib_events``), a protocol each. AP and AUC are computed per batch; a part's value is their mean.
A tenth of the nodes is held out from the training part; events with a node that no training event has are also
scored on their own (the inductive setting).

What may be read when a batch is scored: models read the snapshots before each event's own. So do the authors' models
that look up neighbors; their models with a memory, EdgeBank, and the rules here also read earlier batches of the same
snapshot. Models here are trained, and their epoch is chosen, on uniform negatives, as the authors' are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from strobe.api import open_run
from strobe.engine.run import Run
from strobe.protocols.base import Protocol, ProtocolRequest, ProtocolResult
from strobe.protocols.dyglib_events import Batch, SplitEvents, iter_batches
from strobe.protocols.events import Floats, read_events
from strobe.protocols.model_names import names_from
from strobe.protocols.snapshot_ranking import WITH_PAIR_FEATURES, as_published
from strobe.protocols.timed_pairs import RULES, PairHistory, TimedPairs, score_pairs, train_on_links
from strobe.tasks import LinkPrediction
from strobe.tasks.metrics import ap, auc

TRAINING: Mapping[str, Any] = {"window": 1, "lr": 0.003, "epochs": 30, "patience": 8}
"""Settings of training, a step per snapshot."""

WINDOW = 0.15
"""Share of the events so far that EdgeBank with a window remembers."""
BASELINES = (*RULES[:2], "edgebank-interval", "edgebank-threshold", *RULES[2:])

MEASURED = (("validation", "all nodes"), ("test", "all nodes"), ("test", "new nodes"))
"""Parts and settings that are scored."""

Scores = Mapping[tuple[str, str], Sequence[Floats]]
"""Scores of the batches of each of ``MEASURED``."""


def edgebank_scores(history: PairHistory, times: Floats, pairs: TimedPairs) -> dict[str, Floats]:
    """Scores of ``BASELINES``, among them DyGLib's four memories of EdgeBank.

    ``edgebank``: unlimited. ``edgebank-window``: events in the last 15 % of the events so far.
    ``edgebank-interval``: events in a window as long as the mean time between a pair's events, 0 for pairs with one.
    ``edgebank-threshold``: pairs with at least the mean number of events.

    Args:
        history: the events read so far.
        times: their times.
        pairs: what is scored.
    """
    found = history.scores(pairs.src, pairs.dst, since=float(np.quantile(times, 1 - WINDOW)))
    at = history.find(pairs.src, pairs.dst)
    interval = ((history.last - history.first) / np.maximum(history.count - 1, 1)).mean()
    lasting, often = history.last >= times.max() - interval, history.count >= history.count.mean()
    found["edgebank-interval"], found["edgebank-threshold"] = (
        ((at >= 0) & kept[at]) * 1.0 for kept in (lasting, often)
    )
    return found


def score_rules(events: SplitEvents, part: str, setting: str, strategy: str) -> dict[str, list[Floats]]:
    """Scores of the batches of a part by ``BASELINES``, which read all events before the batch."""
    history, read = PairHistory(events.num_nodes), events.is_training
    scores: dict[str, list[Floats]] = {name: [] for name in BASELINES}
    first = int(np.searchsorted(events.time, events.end_times[0], side="right"))
    history.read(events.src[read], events.dst[read], events.time[read])
    for batch in iter_batches(events, part, setting, strategy):
        start = int(batch.events[0])
        history.read(events.src[first:start], events.dst[first:start], events.time[first:start])
        first = start
        read = read | ((np.arange(len(read)) < start) & (events.time > events.end_times[0]))
        for name, values in edgebank_scores(history, events.time[read], batch.pairs).items():
            scores[name].append(values)
    return scores


def score_model(run: Run, batches: Sequence[Batch]) -> list[Floats]:
    """Scores of batches by a run, which reads the snapshots before each event."""
    parts = [batch.pairs for batch in batches]
    names = ("src", "dst", "target", "positive")
    joined = TimedPairs(**{name: np.concatenate([getattr(each, name) for each in parts]) for name in names})
    return np.split(score_pairs(run, joined), np.cumsum([len(each) for each in parts])[:-1])


@dataclass(frozen=True, kw_only=True)
class DyglibLinkPrediction(Protocol):
    """Classification of events and negatives.

    Attributes:
        strategy: how negatives are drawn.
    """

    strategy: str

    def read(self, request: ProtocolRequest) -> SplitEvents:
        """Read the events of a request's data set."""
        data = self.choose_data(request.data)
        return SplitEvents.of_events(*read_events(data, data_dir=request.data_dir, on_stage=request.on_stage))

    def run(self, request: ProtocolRequest) -> ProtocolResult:
        method = self.choose_model(request.model)
        if method in BASELINES:
            return next(each for each in self.run_baselines(request) if each.method == method)
        began, events = perf_counter(), self.read(request)
        training = dict(TRAINING) | ({} if request.epochs is None else {"epochs": request.epochs})
        graphs = [events.graph(training_only=each) for each in (True, False)]
        if not method.endswith(WITH_PAIR_FEATURES):
            graphs = [as_published(each) for each in graphs]
        batches = {each: list(iter_batches(events, *each, self.strategy)) for each in MEASURED}
        train_end, validation_end = events.end_snapshots
        task = LinkPrediction(train=train_end, validation=validation_end - train_end, candidates="destinations")
        scores, epochs = [], []
        for seed in request.seed_values:
            run = open_run(train_on_links(request, graphs[0], method, task, seed, training), graph=graphs[1])
            scores.append({each: score_model(run, batches[each]) for each in MEASURED})
            epochs.append(run.best_epoch)
        return self._result(method, events, request, scores, training | {"best_epochs": epochs}, began)

    def run_baselines(self, request: ProtocolRequest) -> list[ProtocolResult]:
        """EdgeBank with the four memories of the authors' code, and other rules."""
        began, events = perf_counter(), self.read(request)
        scores = {}
        for number, each in enumerate(MEASURED):
            request.report("baselines", number, len(MEASURED))
            scores[each] = score_rules(events, *each, self.strategy)
        return [
            self._result(name, events, request, [{each: scores[each][name] for each in MEASURED}], {}, began)
            for name in BASELINES
        ]

    def _result(
        self,
        method: str,
        events: SplitEvents,
        request: ProtocolRequest,
        scores: Sequence[Scores],
        settings: dict[str, Any],
        began: float,
    ) -> ProtocolResult:
        """Build the result from the scores of every seed."""
        values = {each: [mean_metrics(of_seed[each]) for of_seed in scores] for each in MEASURED}
        ap_and_auc = {each: tuple(zip(*values[each], strict=True)) for each in MEASURED}
        new = ap_and_auc["test", "new nodes"]
        return ProtocolResult(
            protocol=self.name,
            data=self.choose_data(request.data),
            method=method,
            metric=self.metric,
            seeds=(0,) if method in BASELINES else request.seed_values,
            validation=ap_and_auc["validation", "all nodes"][0],
            test=ap_and_auc["test", "all nodes"][0],
            more=dict(zip(self.more_metrics, (ap_and_auc["test", "all nodes"][1], *new), strict=True)),
            coverage=1.0,  # every event is scored
            settings={f"{part} events, {setting}": len(events.events(part, setting)) for part, setting in MEASURED}
            | {"training events": int(events.is_training.sum())}
            | settings,
            seconds=perf_counter() - began,
        )


def mean_metrics(batches: Sequence[Floats]) -> tuple[float, float]:
    """Means of AP and AUC over batches, whose scores are those of events, then of as many negatives."""
    positive = [np.arange(len(scores)) < len(scores) // 2 for scores in batches]
    found = [(ap(scores, true), auc(scores, true)) for scores, true in zip(batches, positive, strict=True)]
    precision, area = np.mean(found, axis=0).tolist()
    return precision, area


_MODELS = names_from("gcn")


def _protocol(strategy: str, meaning: str) -> DyglibLinkPrediction:
    return DyglibLinkPrediction(
        name=f"dyglib-{strategy}",
        strategy=strategy,
        description=f"DyGLib's link prediction with {strategy} negatives: is a pair an event, or a negative?",
        citation="Yu et al., Towards Better Dynamic Graph Learning: New Architecture and Unified Library, NeurIPS 2023",
        data_sets=("canvote", "uslegis"),
        models=(*(name + WITH_PAIR_FEATURES for name in _MODELS), *_MODELS, *BASELINES),
        metric="AP",
        more_metrics=("AUC", "AP new nodes", "AUC new nodes"),
        snapshots="years (canvote), congresses (uslegis); scored in batches of 200 events",
        split="70 / 15 / 15 % of the events, by quantiles of time; a tenth of the nodes is held out from training; "
        "events with a node that no training event has are also scored on their own (new nodes)",
        negatives=f"one per event: {meaning}",
        update="models read the snapshots before the event's own, the rules also earlier batches of the same "
        "snapshot, as EdgeBank in the authors' code does; weights are trained on the training part only",
    )


RANDOM = _protocol("random", "the same source with a uniform destination")
HISTORICAL = _protocol("historical", "pairs that had an event before the batch, but not in it")
INDUCTIVE = _protocol(
    "inductive",
    "pairs that had their first event after training or validation and before the batch, but not in it; where there "
    "are too few, uniform pairs",
)
