"""Protocols of the Temporal Graph Benchmark (TGB).

``tgbl-wiki``: Huang et al., "Temporal Graph Benchmark for Machine Learning on Temporal Graphs", NeurIPS 2023, section 4
and the scripts of the package py-tgb. Followed to the letter: split by time quantiles, all other destinations as
negatives, the tie rule, and memory that is updated after every batch of 200 events. TGB's edge features are not used:
the file that is read has none.

Some methods of TGB's leaderboard (DyGFormer, TPNet) look up every event before the time of the one that is ranked, also
events of its own batch. That is an easier task: most-recent-first has an MRR of .7290 with batches and .8206 so. Their
rows in published.toml have a note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from strobe.ops.runtime.njit import cached_njit
from strobe.protocols.base import Protocol, ProtocolRequest, ProtocolResult
from strobe.protocols.events import EventStream, Floats, read_events, split_by_quantile
from strobe.protocols.pair_model import PairModel, PairSettings
from strobe.protocols.ranking import rank_events, reciprocal_mean

WINDOW = 0.15
"""Share of the training time that EdgeBank with a time window remembers."""

Values = tuple[Floats, Floats]
"""Values of pairs, [P], and of destinations, [num_dst]."""


class EventHistory:
    """What a stream's batches so far say about pairs and destinations.

    Attributes:
        num_read: events read.
        pair_count, pair_last: number and time of the last of each pair's events, [P]; 0 and -inf for none.
        dst_count, dst_last: the same of each destination, [num_dst].
    """

    def __init__(self, stream: EventStream) -> None:
        self.stream = stream
        self.num_read = 0
        self.pair_count, self.pair_last = np.zeros(len(stream.pairs)), np.full(len(stream.pairs), -np.inf)
        self.dst_count, self.dst_last = np.zeros(stream.num_dst), np.full(stream.num_dst, -np.inf)

    def advance(self, end: int) -> None:
        """Read events up to ``end``."""
        slot, dst, time = (each[self.num_read : end] for each in (self.stream.pairs.slot, *self._ends()))
        self.pair_count += np.bincount(slot, minlength=len(self.pair_count))
        self.dst_count += np.bincount(dst, minlength=len(self.dst_count))
        np.maximum.at(self.pair_last, slot, time)
        np.maximum.at(self.dst_last, dst, time)
        self.num_read = end

    def _ends(self) -> tuple[Any, Any]:
        return self.stream.dst, self.stream.time

    @property
    def last_time(self) -> float:
        """Time of the last event read."""
        return float(self.stream.time[self.num_read - 1]) if self.num_read else -np.inf

    def window_start(self) -> float:
        """Time from which events are remembered by a window of ``WINDOW`` of the training time."""
        time = self.stream.time[: self.stream.train_end]
        return self.last_time - WINDOW * float(time[-1] - time[0]) if len(time) else -np.inf

    def scores(self, first: int, end: int, values: Values) -> Floats:
        """Return the scores of all destinations for events ``first`` up to ``end``, [end - first, num_dst]."""
        pairs, result = self.stream.pairs, np.empty((end - first, self.stream.num_dst))
        met = self.pair_count > 0
        _fill_scores(self.stream.src[first:end], pairs.src_ptr, pairs.dst, met, *values, result)
        return result


def _zeros(history: EventHistory) -> Floats:
    return np.zeros(history.stream.num_dst)


def _recent_first(history: EventHistory) -> Values:
    """A pair met is above every destination not met: its time is moved behind all times of the stream."""
    span = float(np.ptp(history.stream.time)) + 1
    return history.pair_last + span, history.dst_last


def _last_meeting(history: EventHistory) -> Values:
    return history.pair_last, np.full(history.stream.num_dst, -np.inf)


def _popularity(history: EventHistory) -> Values:
    return history.dst_count[history.stream.pairs.dst], history.dst_count


def _in_window(history: EventHistory) -> Values:
    return (history.pair_last >= history.window_start()).astype(np.float64), _zeros(history)


BASELINES: Mapping[str, Callable[[EventHistory], Values]] = {
    "most-recent-first": _recent_first,
    "last-meeting": _last_meeting,
    "number-of-meetings": lambda history: (history.pair_count, _zeros(history)),
    "edgebank-window": _in_window,
    "edgebank": lambda history: (np.ones(len(history.pair_count)), _zeros(history)),
    "popularity": _popularity,
}
"""Values of pairs and destinations, by name of the method."""


def score_baseline(stream: EventStream, name: str, part: str) -> Iterator[tuple[int, Floats]]:
    """Yield the first event and the scores, [n, num_dst], of each batch of a part."""
    history = EventHistory(stream)
    for first, end in stream.batches(part):
        history.advance(first)
        yield first, history.scores(first, end, BASELINES[name](history))


@cached_njit
def _fill_scores(src: Any, src_ptr: Any, pair_dst: Any, met: Any, pair_value: Any, dst_value: Any, result: Any) -> None:
    for row in range(len(src)):
        result[row] = dst_value
        for slot in range(src_ptr[src[row]], src_ptr[src[row] + 1]):
            if met[slot]:
                result[row, pair_dst[slot]] = pair_value[slot]


MODEL = "pair-network"

Scores = Iterable[tuple[int, "np.ndarray[Any, Any]"]]
"""First event and scores of all destinations, [n, num_dst], of each batch of a part."""


@dataclass(frozen=True, kw_only=True)
class TgbLinkPrediction(Protocol):
    """Ranking of every event's destination among all destinations.

    Attributes:
        validation_share, test_share: of the events, by quantiles of time.
        batch_size: events between two updates of the memory.
    """

    validation_share: float = 0.15
    test_share: float = 0.15
    batch_size: int = 200

    def read(self, request: ProtocolRequest) -> EventStream:
        """Read the events of a request's data set and split them."""
        data = self.choose_data(request.data)
        events = read_events(data, data_dir=request.data_dir, on_stage=request.on_stage)
        shares = {"validation": self.validation_share, "test": self.test_share}
        return split_by_quantile(*events, **shares, batch_size=self.batch_size)

    def run(self, request: ProtocolRequest) -> ProtocolResult:
        name, stream = self.choose_model(request.model), self.read(request)
        if name in BASELINES:
            return self._run_baseline(name, stream, request)
        return self._run_pair_network(stream, request)

    def run_baselines(self, request: ProtocolRequest) -> list[ProtocolResult]:
        stream = self.read(request)
        results = []
        for number, name in enumerate(BASELINES):
            request.report("baselines", number, len(BASELINES))
            results.append(self._run_baseline(name, stream, request))
        return results

    def _run_pair_network(self, stream: EventStream, request: ProtocolRequest) -> ProtocolResult:
        settings = PairSettings() if request.epochs is None else replace(PairSettings(), epochs=request.epochs)
        began, seeds, validation, test, epochs = perf_counter(), request.seed_values, [], [], []
        for seed in seeds:
            stage = f"training, seed {seed + 1 - request.first_seed} of {request.seeds}: steps"
            model = PairModel(
                stream,
                settings,
                seed=seed,
                device=request.device,
                on_progress=lambda done, total, stage=stage: request.report(stage, done, total),  # type: ignore[misc]
            ).fit()
            validation.append(model.history[model.best_epoch - 1])
            stage = f"testing, seed {seed + 1 - request.first_seed} of {request.seeds}: batches"
            test.append(mean_reciprocal_rank(stream, _counted(model.score("test"), stream, request, stage)))
            epochs.append(model.best_epoch)
        chosen = asdict(settings) | {"device": request.device or "cpu", "best_epochs": epochs}
        return self._result(MODEL, stream, request, seeds, validation, test, chosen, perf_counter() - began)

    def _run_baseline(self, name: str, stream: EventStream, request: ProtocolRequest) -> ProtocolResult:
        began = perf_counter()
        scored = [mean_reciprocal_rank(stream, score_baseline(stream, name, part)) for part in ("validation", "test")]
        return self._result(name, stream, request, (0,), scored[:1], scored[1:], {}, perf_counter() - began)

    def _result(
        self,
        method: str,
        stream: EventStream,
        request: ProtocolRequest,
        seeds: tuple[int, ...],
        validation: list[float],
        test: list[float],
        settings: dict[str, Any],
        seconds: float,
    ) -> ProtocolResult:
        fixed = {
            "batch_size": self.batch_size,
            "events": {part: end - first for part, (first, end) in stream.parts.items()},
            "destinations": stream.num_dst,
        }
        return ProtocolResult(
            protocol=self.name,
            data=self.choose_data(request.data),
            method=method,
            metric=self.metric,
            seeds=seeds,
            validation=tuple(validation),
            test=tuple(test),
            coverage=1.0,  # every event is ranked, also those of sources and destinations never seen before
            settings=fixed | settings,
            seconds=seconds,
        )


def mean_reciprocal_rank(stream: EventStream, scores: Scores) -> float:
    """Return the MRR of a part's batches; ranks equal those of py-tgb's evaluator, which the tests compare."""
    return reciprocal_mean(np.concatenate([rank_events(stream, first, batch) for first, batch in scores]))


def _counted(scores: Scores, stream: EventStream, request: ProtocolRequest, stage: str) -> Scores:
    total = sum(1 for _ in stream.batches("test"))
    for number, batch in enumerate(scores):
        request.report(stage, number, total)
        yield batch


WIKI = TgbLinkPrediction(
    name="tgbl-wiki",
    description="TGB's link prediction on edits of Wikipedia pages: rank the page of every edit among all pages.",
    citation="Huang et al., Temporal Graph Benchmark for Machine Learning on Temporal Graphs, NeurIPS 2023",
    data_sets=("wikipedia_jodie",),
    models=(MODEL, *BASELINES),
    metric="MRR",
    snapshots="none: a stream of events, in batches of 200",
    split="70 / 15 / 15 % of the events, by quantiles of time",
    negatives="all other pages, except those that the same user edits at the same second; "
    "rank = 1 + (optimistic + pessimistic) / 2",
    update="a batch is scored from the batches before it; weights are trained on the training part only",
)
