"""Pairs that are scored at given snapshots: by a trained run, and by rules on the events before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strobe.api import train
from strobe.engine.evaluation.link_scores import link_scorers
from strobe.engine.evaluation.predict_links import link_problem
from strobe.engine.run import Run
from strobe.graph import DynamicGraph, from_edges
from strobe.protocols.base import ProtocolRequest
from strobe.protocols.events import Floats, Ids
from strobe.protocols.snapshot_ranking import WITH_PAIR_FEATURES
from strobe.protocols.training_progress import ReportedEpochs
from strobe.tasks import LinkPrediction
from strobe.tasks.metrics import BoolArray

DIGITS = 5
"""Decimals of scores: equal pairs must tie, and the last digits of a float32 depend on where it was computed."""

RULES = ("edgebank", "edgebank-window", "most-recent-first", "popularity")


@dataclass(frozen=True, eq=False, kw_only=True)
class TimedPairs:
    """Pairs of nodes, each with the snapshot in which it may have an edge.

    Attributes:
        src, dst: ends of each pair, [n].
        target: the snapshot, [n].
        positive: whether the pair is an edge of it, [n].
    """

    src: Ids
    dst: Ids
    target: Ids
    positive: BoolArray

    def __len__(self) -> int:
        return len(self.src)


def train_on_links(
    request: ProtocolRequest,
    graph: DynamicGraph,
    method: str,
    task: LinkPrediction,
    seed: int,
    settings: Mapping[str, Any],
) -> Run:
    """Train the model of a method, which reads the history of pairs if its name says so.

    Args:
        request: has the device, and is told of epochs.
        graph: the snapshots, as the method reads them.
        method: name of a model, with or without ``+pair-features``.
        task: with its split and candidates.
        seed: of the run.
        settings: of training.
    """
    with_features = method.endswith(WITH_PAIR_FEATURES)
    return train(
        graph,
        method.removesuffix(WITH_PAIR_FEATURES),
        replace(task, pair_features=with_features, from_history=with_features),
        seed=seed,
        device=request.device or "cpu",
        progress=ReportedEpochs(request, f"training, seed {seed}: epochs"),
        **settings,
    )


def score_pairs(run: Run, pairs: TimedPairs) -> Floats:
    """Score pairs by a run that has read all snapshots before the target of each, [n]."""
    scores = np.full(len(pairs), np.nan)
    times = range(int(pairs.target.min()) - 1, int(pairs.target.max()))
    windows = run.job.evaluation_windows(times)
    for scorer in link_scorers(run.model, run.head, link_problem(run), windows, times):
        here = np.flatnonzero(pairs.target == scorer.t + 1)
        scores[here] = scorer.pair_scores(pairs.src[here], pairs.dst[here])
    return np.round(scores, DIGITS)


def snapshots_of_events(src: Ids, dst: Ids, snapshot: Ids, num_nodes: int) -> DynamicGraph:
    """The directed graph of events: each pair once per snapshot, without self-loops, and the nodes with an event."""
    edges = []
    for t in range(int(snapshot.max()) + 1):
        keys = np.unique((src * num_nodes + dst)[(snapshot == t) & (src != dst)])
        edges.append(np.stack(np.divmod(keys, num_nodes)))
    return from_edges(edges, num_nodes=num_nodes, nodes=[np.unique(each) for each in edges], directed=True)


class PairHistory:
    """Events read so far, for rules that score pairs by them; nothing is fitted.

    Args:
        num_nodes: size of the id space.
    """

    def __init__(self, num_nodes: int) -> None:
        self._num_nodes = num_nodes
        self.keys = np.empty(0, np.int64)
        self.count = np.empty(0, np.int64)
        self.first, self.last = np.empty(0), np.empty(0)
        self._dst_count, self._dst_last = np.zeros(num_nodes), np.full(num_nodes, -np.inf)
        self._start = np.inf

    def read(self, src: Ids, dst: Ids, time: Floats) -> None:
        """Read events, none of them before those already read."""
        if not len(src):
            return
        keys = np.concatenate([self.keys, src * self._num_nodes + dst])
        self.keys, at = np.unique(keys, return_inverse=True)
        count, first, last = np.zeros(len(self.keys), np.int64), *np.full((2, len(self.keys)), np.inf)
        last = -last
        np.add.at(count, at, np.concatenate([self.count, np.ones(len(src), np.int64)]))
        np.minimum.at(first, at, np.concatenate([self.first, time]))
        np.maximum.at(last, at, np.concatenate([self.last, time]))
        self.count, self.first, self.last = count, first, last
        np.add.at(self._dst_count, dst, 1)
        np.maximum.at(self._dst_last, dst, time)
        self._start = min(self._start, float(time.min()))

    def find(self, src: Ids, dst: Ids) -> Ids:
        """The position of each pair among ``keys``; -1 for pairs without an event."""
        if not len(self.keys):
            return np.full(len(src), -1)
        keys = src * self._num_nodes + dst
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[at] == keys, at, -1)

    def scores(self, src: Ids, dst: Ids, *, since: float) -> dict[str, Floats]:
        """Score pairs by ``RULES``.

        ``edgebank``: 1 if the pair had an event; ``edgebank-window``: 1 if it had one since a time.
        ``most-recent-first``: pairs by their last event, then others by the last event of the destination.
        ``popularity``: events of the destination.

        Args:
            src, dst: the pairs.
            since: where the window of EdgeBank begins.
        """
        at = self.find(src, dst)
        met = at >= 0
        last = np.where(met, self.last[at] if len(self.last) else 0.0, -np.inf)
        others = np.where(self._dst_count[dst] > 0, 1 - 1 / (2 + self._dst_last[dst] - self._start), 0.0)
        return {
            "edgebank": met.astype(np.float64),
            "edgebank-window": (met & (last >= since)).astype(np.float64),
            "most-recent-first": np.where(met, 2 + last - self._start, others),
            "popularity": self._dst_count[dst].copy(),
        }
