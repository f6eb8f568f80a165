"""Link prediction: which edges a later snapshot will have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from strobe.errors import InputError, OptionError
from strobe.graph import DynamicGraph
from strobe.ops.csr import FloatArray
from strobe.tasks.base import Examples, Metrics, Problem, Task
from strobe.tasks.decoder import PairDecoder
from strobe.tasks.features import inputs_state, with_inputs
from strobe.tasks.fitted import fitted_integer, fitted_numbers
from strobe.tasks.history import History, fit_log_odds, log_odds, num_facts
from strobe.tasks.metrics import ap, auc, hits, mrr, ranks
from strobe.tasks.pairs import Future, Keys, pair_keys
from strobe.tasks.so_far import SoFar
from strobe.tasks.split import Split

KEPT_BYTES = 1 << 28
"""Memory a problem may use to keep the edges of snapshots between epochs."""

FITTED_PAIRS = 1_000_000
"""Pairs that are enough to fit what scores start from."""


@dataclass(frozen=True, kw_only=True)
class LinkPrediction(Task):
    """Predict the edges of the snapshot ``ahead`` of the one read, among the nodes present in the one read.

    A *positive* is such an edge: parallel ones are asked once, self-loops not at all, an undirected edge once, read
    in an order drawn by lot. Edges with an end that is not present yet cannot be asked; ``counts`` tells how many.
    A *negative* is a positive with another destination: uniformly one of the nodes present, but not the source
    itself nor a node it will have an edge to. Draws are independent. A source that will have an edge to everybody has
    no negative; its positives are asked alone.

    ``negatives`` stand beside each positive in training, drawn anew each epoch; ``eval_negatives`` in evaluation,
    always the same. Where a snapshot has more than ``max_pairs`` positives, so many are drawn from them, in training
    anew each epoch, in evaluation always the same; None asks all.

    ``from_history``: True lets the model say by how much a score differs from the log-odds of an edge given what is
    known of the pair (whether, when and how often it had one, either way round, and the degrees of its ends; a logistic
    regression fitted to training pairs), at up to 24 bytes of memory for each edge of each snapshot; False from 0. A
    model alone cannot know it: embeddings of so few numbers do not remember who met whom.
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
        """Reads the edges of new snapshots alone."""
        assert isinstance(problem, LinkProblem)
        return LinkProblem(self, graph, problem.seed, problem.state(), problem)


class LinkProblem(Problem):
    """Link prediction on a graph.

    Runs are compared by average precision: like the loss it is taken over all pairs, and it is defined wherever
    there is a positive, which ranks and areas are not.
    """

    metric = "ap"
    higher_is_better = True
    asked_at_once = True
    asks_pairs = True
    changes_with_epoch = True

    def __init__(
        self,
        task: LinkPrediction,
        graph: DynamicGraph,
        seed: int,
        state: dict[str, Any] | None,
        before: LinkProblem | None = None,
    ) -> None:
        self.task = task
        self.seed: int = seed if state is None else fitted_integer(state, "seed")
        self.reach = task.ahead
        self.split = Split.in_time(len(graph) - task.ahead, task.train, task.validation, task.ahead - 1)
        self.graph = with_inputs(graph, self.split, None if state is None else state["inputs"])
        self._futures: dict[int, Future] = {}
        if state is None and not any(len(self._future(t).edges) for t in self.split.with_examples("train")):
            raise InputError(
                "no training snapshot is followed by an edge between nodes it has: nothing can be learnt about edges. "
                "Cut the data into longer snapshots, let edges live longer, or keep all nodes present"
            )
        self._so_far: SoFar = SoFar() if before is None else before._so_far
        self._past = self._history(before) if task.from_history else None
        self.start: FloatArray | None = None
        if task.from_history:
            size = 1 + num_facts(graph.directed)
            self.start = self._fit() if state is None else fitted_numbers(state, "start", size)

    def head(self, width: int) -> nn.Module:
        return PairDecoder(width, directed=self.graph.directed)

    def examples(self, t: int, epoch: int | None = None) -> Examples | None:
        pairs = self._drawn(t, epoch)
        return None if pairs is None else self._started(t, pairs)

    def _drawn(self, t: int, epoch: int | None) -> Examples | None:
        """Positives with their negatives."""
        future = self._future(t) if self.split.part_of(t) else None
        if future is None or not len(future.edges):
            return None
        # Its own stream of numbers for every snapshot, so that the order of asking does not matter.
        rng = np.random.default_rng([self.seed, t] if epoch is None else [self.seed, t, 1 + epoch])
        keys = future.edges
        if self.task.max_pairs is not None and len(keys) > self.task.max_pairs:
            keys = keys[np.sort(rng.choice(len(keys), self.task.max_pairs, replace=False, shuffle=False))]
        src, dst = future.ends(keys)
        if not self.graph.directed:
            turned = rng.random(len(src)) < 0.5
            src, dst = np.where(turned, dst, src), np.where(turned, src, dst)
        count = self.task.eval_negatives if epoch is None else self.task.negatives
        has, others = future.draw_others(src, count, rng)
        return _joined(src, dst, has, others)

    def questions(self, t: int) -> Examples | None:
        """Every edge the snapshot has: will it come again?"""
        now = Future.of(self.graph[t], self.graph[t])
        rows = tuple(torch.from_numpy(ends) for ends in now.ends(now.edges))
        return self._started(t, Examples(rows, torch.full((len(now.edges),), -1.0))) if len(now.edges) else None

    def loss(self, answers: Tensor, examples: Examples) -> Tensor:
        scores = _from_start(answers, examples)
        return nn.functional.binary_cross_entropy_with_logits(scores, examples.y.to(answers), reduction="sum")

    def metrics(self, answers: Sequence[Tensor], examples: Sequence[Examples]) -> Metrics:
        if not examples:
            return {}
        pairs = zip(answers, examples, strict=True)
        said = np.concatenate([_from_start(each.detach().cpu().double(), asked).numpy() for each, asked in pairs])
        return _scores(said, examples)

    def baselines(self, part: str) -> dict[str, Metrics]:
        """``last snapshot``: 1 where the snapshot read has the edge. ``seen before``: 1 where it or one before it has
        (EdgeBank without forgetting). ``popularity``: edges that reached the destination so far. ``history``: what
        the model's scores start from, alone.

        Memory: 8 bytes for each distinct edge seen, which are kept for the snapshots to come.
        """
        said: dict[str, list[FloatArray]] = {"last snapshot": [], "seen before": [], "popularity": []}
        asked: list[Examples] = []
        for t in self.split.with_examples(part):
            so_far, examples = self._until(t), self.examples(t)
            if examples is None:
                continue
            assert examples.rows is not None
            src, dst = (self.graph[t].nodes[rows.numpy()] for rows in examples.rows)
            keys = pair_keys(src, dst, self.graph.directed)
            asked.append(examples)
            said["last snapshot"].append(so_far.has_now(keys).astype(np.float64))
            said["seen before"].append(so_far.has_had(keys).astype(np.float64))
            said["popularity"].append(so_far.reached(dst).astype(np.float64))
            if examples.base is not None:
                said.setdefault("history", []).append(examples.base.numpy())
        return {name: _scores(np.concatenate(scores), asked) for name, scores in said.items()} if asked else {}

    def counts(self, part: str) -> dict[str, int]:
        times = self.split.with_examples(part)
        futures = [self._future(t) for t in times]
        known = sum(len(future.edges) for future in futures)
        asked = [examples.y for t in times if (examples := self.examples(t)) is not None]
        positives = sum(int(y.sum()) for y in asked)
        return {
            "snapshots": len(asked),
            "examples": sum(len(y) for y in asked),
            "positives": positives,
            "positives_not_drawn": known - positives,
            "edges_with_a_new_end": sum(future.lost for future in futures),
        }

    def table(self, answers: Tensor, examples: Examples, t: int) -> dict[str, Any]:
        del t
        return {
            "probability": torch.sigmoid(_from_start(answers.detach().cpu().double(), examples)).numpy(),
            "actual": np.nan_to_num(examples.y.cpu().numpy(), nan=-1).astype(np.int64),
        }

    def state(self) -> dict[str, Any]:
        start = None if self.start is None else self.start.tolist()
        return {"inputs": inputs_state(self.graph), "seed": self.seed, "start": start}

    def _started(self, t: int, pairs: Examples) -> Examples:
        """The pairs with what their scores start from."""
        if self._past is None:
            return pairs
        assert self.start is not None
        return replace(pairs, base=torch.from_numpy(log_odds(self._facts(t, pairs), self.start)))

    def _facts(self, t: int, pairs: Examples) -> FloatArray:
        assert self._past is not None
        assert pairs.rows is not None
        src, dst = (rows.numpy() for rows in pairs.rows)
        return self._past.facts(self.graph[t], src, dst)

    def _fit(self) -> FloatArray:
        """What scores start from, fitted to pairs as the first epoch draws them, the same number of each snapshot."""
        times = self.split.with_examples("train")
        facts, y = [], []
        for t in times:
            pairs = self._drawn(t, 0)
            if pairs is None:
                continue
            most = max(FITTED_PAIRS // len(times), 1)
            chosen = np.random.default_rng([self.seed, t]).permutation(len(pairs))[:most]
            facts.append(self._facts(t, pairs)[chosen])
            y.append(pairs.y.numpy()[chosen].astype(np.float64))
        return fit_log_odds(facts, y)

    def _future(self, t: int) -> Future:
        """The edges to ask snapshot t about: every epoch asks again, so as many are kept as fit."""
        if t in self._futures:
            return self._futures[t]
        future = Future.of(self.graph[t], self.graph[t + self.task.ahead])
        known = list(self._futures.values())  # others may ask meanwhile
        if sum(kept.nbytes for kept in known) + future.nbytes <= KEPT_BYTES:
            self._futures[t] = future
        return future

    def _history(self, before: LinkProblem | None) -> History:
        if before is None or before._past is None:
            return History(self.graph)
        before._past.read(self.graph)
        return before._past

    def _until(self, t: int) -> SoFar:
        """What is known when snapshot t has been read; whoever asks about earlier ones again begins anew."""
        if self._so_far.num_read > t + 1:
            self._so_far = SoFar()
        while self._so_far.num_read <= t:
            self._so_far.read(self.graph[self._so_far.num_read])
        return self._so_far


def _joined(src: Keys, dst: Keys, has: np.ndarray[Any, np.dtype[np.bool_]], others: Keys) -> Examples:
    """Every positive, then its negatives: 1 0 0 0 1 0 0 0 …"""
    size = 1 + has * others.shape[1]
    starts = np.cumsum(size) - size
    y = np.zeros(int(size.sum()), np.float32)
    y[starts] = 1
    ends = np.empty(len(y), np.int64)
    ends[starts] = dst
    ends[y == 0] = others.ravel()
    return Examples((torch.from_numpy(np.repeat(src, size)), torch.from_numpy(ends)), torch.from_numpy(y))


def _from_start(answers: Tensor, examples: Examples) -> Tensor:
    """Scores: what they start from, and by how much the model says they differ."""
    return answers if examples.base is None else answers + examples.base.to(answers)


def _scores(said: FloatArray, examples: Sequence[Examples]) -> Metrics:
    """Over all pairs, and per positive against its own negatives; ties count as the mean rank."""
    positive = np.concatenate([each.y.cpu().numpy() for each in examples]) > 0
    found = {"ap": ap(said, positive)}
    if not positive.all():
        rank = ranks(said, positive)
        found |= {"auc": auc(said, positive), "mrr": mrr(rank)}
        found |= {f"hits@{k}": hits(rank, k) for k in (1, 3, 10)}
    return found
