"""Link prediction: the edges of a later snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from strobe.errors import InputError, OptionError
from strobe.graph import DynamicGraph
from strobe.ops.sparse.csr import FloatArray
from strobe.tasks.base import Examples, Metrics, Problem, Task
from strobe.tasks.edge_history import (
    EdgeHistory,
    SeenEdges,
    fit_logistic_regression,
    num_pair_features,
    predict_log_odds,
)
from strobe.tasks.heads import PairDecoder
from strobe.tasks.inputs import inputs_state, with_inputs
from strobe.tasks.metrics import ap, auc, hits_at_k, mrr, rank_positives
from strobe.tasks.pairs import Keys, TargetEdges, pair_keys
from strobe.tasks.saved_state import read_integer, read_numbers
from strobe.tasks.split import Split

CACHE_BYTES = 1 << 28
"""Bytes of target edges that a problem caches between epochs."""

MAX_FIT_PAIRS = 1_000_000
"""Pairs that offsets are fitted to, at most."""


@dataclass(frozen=True, kw_only=True)
class LinkPrediction(Task):
    """Predict the edges of the snapshot ``ahead`` of the one read, among the nodes present in the one read.

    A *positive* is such an edge: parallel edges count once, self-loops are left out, an undirected edge has a random
    direction. Edges with an absent end have no example; ``counts`` has their number. A *negative* is a positive with
    another destination: a uniform sample of the nodes present, except the source and its future neighbors. A source
    with future edges to all nodes has positives only.

    Each positive has ``negatives`` negatives in training, resampled each epoch, and ``eval_negatives`` in evaluation,
    always the same. Of more than ``max_pairs`` positives of a snapshot (None: no limit) a sample is taken, in training
    again each epoch.

    ``from_history``: the model predicts the difference to the log-odds of an edge given the history of the pair
    (whether, when and how often it had an edge, in both directions, and the degrees of its ends), a logistic regression
    fitted to training pairs; embeddings alone cannot store who met whom. Costs up to 24 bytes of memory for each edge
    of each snapshot.
    """

    name: ClassVar[str] = "link-prediction"
    ahead: int = 1
    negatives: int = 5
    eval_negatives: int = 20
    max_pairs: int | None = 100_000
    from_history: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ahead < 1:
            raise OptionError(f"edges cannot be predicted {self.ahead} snapshots ahead: at least 1")
        for name in ("negatives", "eval_negatives", "max_pairs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"{name} must be at least 1, not {value}")

    def bind(self, graph: DynamicGraph, *, seed: int = 0, state: dict[str, Any] | None = None) -> LinkProblem:
        return LinkProblem(self, graph, seed, state)

    def rebind(self, problem: Problem, graph: DynamicGraph) -> LinkProblem:
        """Bind to a grown graph; reads only the edges of new snapshots."""
        assert isinstance(problem, LinkProblem)
        return LinkProblem(self, graph, problem.seed, problem.state(), problem)


class LinkProblem(Problem):
    """Link prediction on a graph.

    Runs are compared by average precision, which covers all pairs, as the loss does, and is defined wherever there is a
    positive, which MRR and AUC are not.
    """

    metric = "ap"
    higher_is_better = True
    thread_safe = True
    is_edge_level = True
    resamples_each_epoch = True

    def __init__(
        self,
        task: LinkPrediction,
        graph: DynamicGraph,
        seed: int,
        state: dict[str, Any] | None,
        previous: LinkProblem | None = None,
    ) -> None:
        self.task = task
        self.seed: int = seed if state is None else read_integer(state, "seed")
        self.target_delay = task.ahead
        self.split = Split.by_time(len(graph) - task.ahead, task.train, task.validation, task.ahead - 1)
        self.graph = with_inputs(graph, self.split, None if state is None else state["inputs"])
        self._target_edges_cache: dict[int, TargetEdges] = {}
        if state is None and not any(len(self._target_edges(t).edges) for t in self.split.with_examples("train")):
            raise InputError(
                "no training snapshot has a future edge between its nodes: there are no positives. Cut the data into "
                "longer snapshots, let edges live longer, or keep all nodes present"
            )
        self._seen_edges: SeenEdges = SeenEdges() if previous is None else previous._seen_edges
        self._edge_history = self._make_edge_history(previous) if task.from_history else None
        self.offset_weights: FloatArray | None = None
        if task.from_history:
            size = 1 + num_pair_features(graph.directed)
            self.offset_weights = self._fit() if state is None else read_numbers(state, "offset_weights", size)

    def head(self, width: int) -> nn.Module:
        return PairDecoder(width, directed=self.graph.directed)

    def examples(self, t: int, epoch: int | None = None) -> Examples | None:
        pairs = self._sample_pairs(t, epoch)
        return None if pairs is None else self._with_offset(t, pairs)

    def _sample_pairs(self, t: int, epoch: int | None) -> Examples | None:
        """Sample positives with their negatives."""
        future = self._target_edges(t) if self.split.part_of(t) else None
        if future is None or not len(future.edges):
            return None
        # A random stream per snapshot: examples do not depend on the order of calls.
        rng = np.random.default_rng([self.seed, t] if epoch is None else [self.seed, t, 1 + epoch])
        keys = future.edges
        if self.task.max_pairs is not None and len(keys) > self.task.max_pairs:
            keys = keys[np.sort(rng.choice(len(keys), self.task.max_pairs, replace=False, shuffle=False))]
        src, dst = future.ends(keys)
        if not self.graph.directed:
            turned = rng.random(len(src)) < 0.5
            src, dst = np.where(turned, dst, src), np.where(turned, src, dst)
        count = self.task.eval_negatives if epoch is None else self.task.negatives
        return _interleave_negatives(src, dst, *future.sample_negatives(src, count, rng))

    def unlabeled_examples(self, t: int) -> Examples | None:
        """Every edge of the snapshot, to predict whether it recurs."""
        now = TargetEdges.from_snapshots(self.graph[t], self.graph[t])
        rows = tuple(torch.from_numpy(ends) for ends in now.ends(now.edges))
        return self._with_offset(t, Examples(rows, torch.full((len(now.edges),), -1.0))) if len(now.edges) else None

    def loss(self, predictions: Tensor, examples: Examples) -> Tensor:
        scores = _add_offset(predictions, examples)
        return nn.functional.binary_cross_entropy_with_logits(scores, examples.labels.to(predictions), reduction="sum")

    def metrics(self, predictions: Sequence[Tensor], examples: Sequence[Examples]) -> Metrics:
        if not examples:
            return {}
        pairs = zip(predictions, examples, strict=True)
        scores = np.concatenate([_add_offset(each.detach().cpu().double(), of).numpy() for each, of in pairs])
        return _scores(scores, examples)

    def baselines(self, part: str) -> dict[str, Metrics]:
        """``last snapshot``: 1 if the snapshot read has the edge. ``seen before``: 1 if any snapshot so far has it
        (EdgeBank with unlimited memory). ``popularity``: in-edges of the destination so far. ``history``: the offset.

        Memory: 8 bytes for each distinct edge so far.
        """
        scores: dict[str, list[FloatArray]] = {"last snapshot": [], "seen before": [], "popularity": []}
        scored: list[Examples] = []
        for t in self.split.with_examples(part):
            seen, examples = self._seen_edges_until(t), self.examples(t)
            if examples is None:
                continue
            assert examples.cell_index is not None
            src, dst = (self.graph[t].nodes[rows.numpy()] for rows in examples.cell_index)
            keys = pair_keys(src, dst, self.graph.directed)
            scored.append(examples)
            scores["last snapshot"].append(seen.in_last_snapshot(keys).astype(np.float64))
            scores["seen before"].append(seen.ever_seen(keys).astype(np.float64))
            scores["popularity"].append(seen.num_in_edges(dst).astype(np.float64))
            if examples.offset is not None:
                scores.setdefault("history", []).append(examples.offset.numpy())
        return {name: _scores(np.concatenate(each), scored) for name, each in scores.items()} if scored else {}

    def counts(self, part: str) -> dict[str, int]:
        times = self.split.with_examples(part)
        futures = [self._target_edges(t) for t in times]
        known = sum(len(future.edges) for future in futures)
        labels = [examples.labels for t in times if (examples := self.examples(t)) is not None]
        positives = sum(int(y.sum()) for y in labels)
        return {
            "snapshots": len(labels),
            "examples": sum(len(y) for y in labels),
            "positives": positives,
            "positives_not_sampled": known - positives,
            "edges_with_a_new_end": sum(future.num_absent_ends for future in futures),
        }

    def table(self, predictions: Tensor, examples: Examples, t: int) -> dict[str, Any]:
        del t
        return {
            "probability": torch.sigmoid(_add_offset(predictions.detach().cpu().double(), examples)).numpy(),
            "actual": np.nan_to_num(examples.labels.cpu().numpy(), nan=-1).astype(np.int64),
        }

    def state(self) -> dict[str, Any]:
        weights = None if self.offset_weights is None else self.offset_weights.tolist()
        return {"inputs": inputs_state(self.graph), "seed": self.seed, "offset_weights": weights}

    def _with_offset(self, t: int, pairs: Examples) -> Examples:
        """Add the log-odds by the history of the pairs."""
        if self._edge_history is None:
            return pairs
        assert self.offset_weights is not None
        return replace(
            pairs, offset=torch.from_numpy(predict_log_odds(self._pair_features(t, pairs), self.offset_weights))
        )

    def _pair_features(self, t: int, pairs: Examples) -> FloatArray:
        assert self._edge_history is not None
        assert pairs.cell_index is not None
        src, dst = (rows.numpy() for rows in pairs.cell_index)
        return self._edge_history.pair_features(self.graph[t], src, dst)

    def _fit(self) -> FloatArray:
        """Fit the offset to pairs of the first epoch, equally many of each snapshot."""
        times = self.split.with_examples("train")
        features, labels = [], []
        for t in times:
            pairs = self._sample_pairs(t, 0)
            if pairs is None:
                continue
            most = max(MAX_FIT_PAIRS // len(times), 1)
            chosen = np.random.default_rng([self.seed, t]).permutation(len(pairs))[:most]
            features.append(self._pair_features(t, pairs)[chosen])
            labels.append(pairs.labels.numpy()[chosen].astype(np.float64))
        return fit_logistic_regression(features, labels)

    def _target_edges(self, t: int) -> TargetEdges:
        """The target edges of snapshot t, cached as far as they fit."""
        if t in self._target_edges_cache:
            return self._target_edges_cache[t]
        future = TargetEdges.from_snapshots(self.graph[t], self.graph[t + self.task.ahead])
        cached = list(self._target_edges_cache.values())  # other threads may insert meanwhile
        if sum(each.nbytes for each in cached) + future.nbytes <= CACHE_BYTES:
            self._target_edges_cache[t] = future
        return future

    def _make_edge_history(self, previous: LinkProblem | None) -> EdgeHistory:
        if previous is None or previous._edge_history is None:
            return EdgeHistory(self.graph)
        previous._edge_history.update(self.graph)
        return previous._edge_history

    def _seen_edges_until(self, t: int) -> SeenEdges:
        """The edges up to snapshot t; read again from the first snapshot if later ones have been read."""
        if self._seen_edges.num_read > t + 1:
            self._seen_edges = SeenEdges()
        while self._seen_edges.num_read <= t:
            self._seen_edges.update(self.graph[self._seen_edges.num_read])
        return self._seen_edges


def _interleave_negatives(src: Keys, dst: Keys, has: np.ndarray[Any, np.dtype[np.bool_]], negatives: Keys) -> Examples:
    """Build examples of every positive followed by its negatives: 1 0 0 0 1 0 0 0 …"""
    size = 1 + has * negatives.shape[1]
    starts = np.cumsum(size) - size
    y = np.zeros(int(size.sum()), np.float32)
    y[starts] = 1
    ends = np.empty(len(y), np.int64)
    ends[starts] = dst
    ends[y == 0] = negatives.ravel()
    return Examples((torch.from_numpy(np.repeat(src, size)), torch.from_numpy(ends)), torch.from_numpy(y))


def _add_offset(predictions: Tensor, examples: Examples) -> Tensor:
    """Scores: predictions plus the offset."""
    return predictions if examples.offset is None else predictions + examples.offset.to(predictions)


def _scores(scores: FloatArray, examples: Sequence[Examples]) -> Metrics:
    """AP and AUC over all pairs; MRR and hits of each positive among its negatives."""
    positive = np.concatenate([each.labels.cpu().numpy() for each in examples]) > 0
    metrics = {"ap": ap(scores, positive)}
    if not positive.all():
        rank = rank_positives(scores, positive)
        metrics |= {"auc": auc(scores, positive), "mrr": mrr(rank)}
        metrics |= {f"hits@{k}": hits_at_k(rank, k) for k in (1, 3, 10)}
    return metrics
