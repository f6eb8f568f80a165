"""Link prediction: the edges of a later snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from strobe.errors import InputError, OptionError, UnknownNameError
from strobe.graph import DynamicGraph
from strobe.ops.dense.logistic import fit_logistic_pairs
from strobe.ops.graph.listed_pairs import DistinctNodes, ListedPairs
from strobe.ops.runtime.parallel import map_in_order
from strobe.ops.sparse.csr import FloatArray, IntArray
from strobe.tasks.base import Examples, Metrics, Problem, Task, edge_ends
from strobe.tasks.edge_history import NODES_OF, EdgeHistory, FirstTimes, find_candidates
from strobe.tasks.grid import CandidateGrid
from strobe.tasks.heads import PairDecoder
from strobe.tasks.inputs import inputs_state, with_inputs
from strobe.tasks.listed_negatives import SUFFIXES, ListedNegatives
from strobe.tasks.pair_batch import BatchDescription
from strobe.tasks.pairs import (
    MAX_NODES,
    Keys,
    add_offset,
    contains,
    edge_keys,
    final_scores,
    interleave_negatives,
    is_bipartite,
    list_pairs,
    pair_metrics,
    replace_by_listed,
    split_keys,
)
from strobe.tasks.saved_state import read_flag, read_integer, read_numbers
from strobe.tasks.split import Split
from strobe.tasks.target_edges import Candidates, TargetEdges, TargetEdgesCache

MAX_FIT_PAIRS = 1_000_000
"""Pairs that offsets are fitted to, at most."""

MAX_PAIRS_AT_ONCE = 1 << 25
"""Pairs up to which several baselines are scored at once; of more, one after the other."""

MAX_FIT_NEGATIVES = 20
"""Negatives per positive that offsets are fitted to, at most."""

CANDIDATES = ("all", "seen", "destinations")
EVAL_SAMPLING = ("uniform", "historical", "inductive")


@dataclass(frozen=True, kw_only=True)
class LinkPrediction(Task):
    """Predict the edges of the snapshot ``ahead`` of the one read.

    A *positive* is such an edge, whether or not its ends are present in the snapshot read: an absent end has the
    embedding of its latest cell, an end that no snapshot has had a learned one. Parallel edges count once, self-loops
    are left out, an undirected edge has a random direction. A *negative* is a positive with another destination: a
    uniform sample of the candidates, except the source and its future neighbors. A source with future edges to all
    candidates has positives only.

    *Candidates* are ``all`` nodes of the graph, also those that only later snapshots have, as in the published
    protocols, those ``seen`` up to the target snapshot, which do not change when the graph grows, or the
    ``destinations`` of edges of the training snapshots and their targets. If the graph is
    bipartite (no source in the training snapshots is a destination in any of them) nodes that have been a source up to
    the snapshot read are left out.

    Each positive has ``negatives`` negatives in training, resampled each epoch, and ``eval_negatives`` in evaluation,
    always the same. In training, of more than ``max_pairs`` positives of a snapshot (None: no limit) a sample is taken
    in each epoch; in evaluation all positives are scored, unless ``eval_max_pairs`` limits them, too.

    ``eval_sampling``: the negatives of evaluation. ``uniform``: as above. ``historical`` (after Poursafaei et al. 2022,
    here per source): distinct candidates that the source has met before the target snapshot, but not in it; uniform
    ones where there are fewer. ``inductive``: those of them that the source first met after the last training target.
    A file (.csv, .parquet, .npz): all pairs that it lists for the source in the target snapshot (``ListedNegatives``),
    for validation and test.

    ``pair_features``: the decoder reads, besides the embeddings, the history of the pair (when and how often it had an
    edge, common neighbors) and the activity of both ends (``strobe.ops.graph.edge_times``); embeddings alone cannot
    store who met whom. ``from_history``: the model predicts the difference to the log-odds of an edge given these
    features, a logistic regression fitted to training pairs. Either costs memory for each run of snapshots that have
    an edge (``EdgeTimes``).

    ``calibrate``: at the end of training, probabilities of edges are fitted to the validation part and measured on the
    test part (``strobe.tasks.calibration``): two passes over the graph and up to 16 million scores. Online training
    never does.
    """

    name: ClassVar[str] = "link-prediction"
    ahead: int = 1
    negatives: int = 5
    eval_negatives: int = 20
    max_pairs: int | None = 100_000
    eval_max_pairs: int | None = None
    candidates: str = "all"
    eval_sampling: str = "uniform"
    from_history: bool = True
    pair_features: bool = True
    calibrate: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ahead < 1:
            raise OptionError(f"edges cannot be predicted {self.ahead} snapshots ahead: at least 1")
        if self.candidates not in CANDIDATES:
            raise UnknownNameError("candidates", self.candidates, CANDIDATES)
        if self.eval_sampling not in EVAL_SAMPLING and Path(self.eval_sampling).suffix not in SUFFIXES:
            raise UnknownNameError("eval_sampling", self.eval_sampling, (*EVAL_SAMPLING, *SUFFIXES))
        for name in ("negatives", "eval_negatives", "max_pairs", "eval_max_pairs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"{name} must be at least 1, not {value}")

    @property
    def shift(self) -> int:
        return self.ahead

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
    encodes_nodes_once = True
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
        self._target_edges_cache = TargetEdgesCache()
        if state is None and not any(len(self._target_edges(t).edges) for t in self.split.with_examples("train")):
            raise InputError("no training snapshot is followed by an edge: there are no positives")
        self.is_bipartite: bool = read_flag(state, "is_bipartite") if state else is_bipartite(graph, self.split.train)
        self._first_times: dict[str, FirstTimes] = previous._first_times if previous else self._find_first_times()
        for first_times in self._first_times.values():
            first_times.update(self.graph)
        self._previous_history: EdgeHistory | None = None if previous is None else vars(previous).get("history")
        self.offset_weights: FloatArray | None = None
        if task.pair_features or task.from_history:
            _ = self.history  # before threads ask for it
        self._listed = self._read_listed() if task.eval_sampling not in EVAL_SAMPLING else None
        if task.from_history:
            size = 2 * self.history.num_node_features + self.history.num_pair_features + 2
            self.offset_weights = self._fit() if state is None else read_numbers(state, "offset_weights", size)

    @property
    def starts_at_offset(self) -> bool:
        return self.task.from_history

    def head(self, width: int) -> nn.Module:
        sizes = (self.history.num_node_features, self.history.num_pair_features) if self.task.pair_features else (0, 0)
        return PairDecoder(width, *sizes, starts_at_zero=self.task.from_history)

    @cached_property
    def history(self) -> EdgeHistory:
        """The edges of all snapshots, read when they are first needed."""
        if self._previous_history is None:
            return EdgeHistory(self.graph)
        self._previous_history.update(self.graph)
        return self._previous_history

    @property
    def _reads_history(self) -> bool:
        return self.task.pair_features or self.task.from_history

    def with_online_split(self, t: int) -> Self:
        _ = self.history  # read once: every copy scores baselines
        return super().with_online_split(t)

    def examples(self, t: int, epoch: int | None = None) -> Examples | None:
        pairs = self.sample_pairs(t, epoch)
        return None if pairs is None else self.describe_pairs(t, pairs)

    def sample_pairs(self, t: int, epoch: int | None = None) -> Examples | None:
        """Sample positives with their negatives."""
        return self._sample_listed_pairs(t, epoch, self.task.eval_negatives if epoch is None else self.task.negatives)

    def _sample_listed_pairs(self, t: int, epoch: int | None, negatives: int) -> Examples | None:
        rng, src, dst = self._sample_positives(t, epoch)
        if not len(src):
            return None
        if not self.graph.directed:
            turned = rng.random(len(src)) < 0.5
            src, dst = np.where(turned, dst, src), np.where(turned, src, dst)
        if epoch is None and self._listed is not None and self.split.part_of(t) != "train":
            if not self.graph.directed:
                src, dst = self._listed.orient(t + self.task.ahead, src, dst)
            return interleave_negatives(src, dst, *self._listed.of_sources(t + self.task.ahead, src))
        candidates = self.candidates(t)
        has, sampled = self._target_edges(t).sample_negatives(src, candidates, negatives, rng)
        if epoch is None and self.task.eval_sampling in ("historical", "inductive"):
            self._replace_by_past(t, src[has], sampled, candidates, rng)
        return interleave_negatives(src, dst, has * negatives, sampled.ravel())

    def _sample_positives(self, t: int, epoch: int | None) -> tuple[np.random.Generator, Keys, Keys]:
        """The snapshot's own random stream, so that calls may come in any order; sources and destinations."""
        rng = np.random.default_rng([self.seed, t] if epoch is None else [self.seed, t, 1 + epoch])
        keys = self._target_edges(t).edges if self.split.part_of(t) else np.empty(0, np.int64)
        most = self.task.eval_max_pairs if epoch is None else self.task.max_pairs
        if most is not None and len(keys) > most:
            keys = keys[np.sort(rng.choice(len(keys), most, replace=False, shuffle=False))]
        return rng, *split_keys(keys)

    def _replace_by_past(
        self, t: int, src: Keys, sampled: Keys, candidates: Candidates, rng: np.random.Generator
    ) -> None:
        """Replace negatives by destinations of the past, as far as there are any."""
        target = t + self.task.ahead
        since = self._last_training_target + 1 if self.task.eval_sampling == "inductive" else 0
        sources, row = np.unique(src, return_inverse=True)
        owner, past = self.history.past_pairs(sources, since, target - 1)
        absent = ~contains(self._target_edges(t).arcs, sources[owner] * MAX_NODES + past)
        absent &= candidates.positions(past) >= 0
        replace_by_listed(sampled, row, owner[absent], past[absent], rng)

    @property
    def _last_training_target(self) -> int:
        return self.split.train[-1] + self.task.ahead

    def _read_listed(self) -> ListedNegatives:
        """Read the file of negatives and check it for all snapshots of evaluation."""
        listed = ListedNegatives.read(Path(self.task.eval_sampling), self.graph)
        for t in (*self.split.with_examples("validation"), *self.split.with_examples("test")):
            listed.check(t + self.task.ahead, self._target_edges(t), directed=self.graph.directed)
        return listed

    def unlabeled_examples(self, t: int) -> Examples | None:
        """Every edge of the snapshot, to predict whether it recurs."""
        now = edge_keys(self.graph[t])
        pairs = list_pairs(*split_keys(now), np.full(len(now), -1, np.float32))
        return self.describe_pairs(t, pairs) if len(now) else None

    def loss(self, predictions: Tensor, examples: Examples) -> Tensor:
        scores = add_offset(predictions, examples)
        return nn.functional.binary_cross_entropy_with_logits(scores, examples.labels.to(predictions), reduction="sum")

    def metrics(self, predictions: Sequence[Tensor], examples: Sequence[Examples]) -> Metrics:
        if not examples:
            return {}
        return pair_metrics(np.concatenate(list(map(final_scores, predictions, examples))), examples)

    def coverage(self, times: range, examples: Sequence[Examples]) -> Metrics:
        """``edges``: the distinct edges of the target snapshots without self-loops; ``coverage``: the scored share."""
        edges = sum(len(self._target_edges(t).edges) for t in times if self.split.part_of(t))
        scored = sum(int((each.labels > 0).sum()) for each in examples)
        return {"coverage": scored / edges, "edges": float(edges)} if edges else {}

    def baselines(self, part: str) -> dict[str, Metrics]:
        """Metrics of ``EdgeHistory.scores`` and of the offset alone:

        ``last snapshot``: 1 if the snapshot read has the edge. ``edgebank``: 1 if any snapshot so far has it (EdgeBank
        with unlimited memory). ``popularity``: in-edges of the destination so far. ``most recent``: pairs by their last
        edge, then other pairs by the last edge of the destination. ``history``: the offset.
        """
        return self.baselines_of(part, {})

    def baselines_of(self, part: str, scored: Mapping[int, Examples]) -> dict[str, Metrics]:
        scores: dict[str, list[Callable[[], FloatArray]]] = {}
        found: list[Examples] = []
        for t in self.split.with_examples(part):
            examples = scored.get(t)
            if examples is None or examples.pairs is None or examples.pairs.destinations.features is None:
                examples = self.sample_pairs(t)
            if examples is None:
                continue
            found.append(examples)
            for name, score in self.history.scorers(t, examples, self.offset_weights).items():
                scores.setdefault(name, []).append(score)
        listed = list(scores.values())

        def measure(k: int) -> Metrics:
            return pair_metrics(np.concatenate([score() for score in listed[k]]), found)

        at_once = sum(map(len, found)) <= MAX_PAIRS_AT_ONCE
        metrics = map_in_order(measure, len(listed)) if at_once else map(measure, range(len(listed)))
        return dict(zip(scores, metrics, strict=True))

    def table(self, predictions: Tensor, examples: Examples, t: int) -> dict[str, Any]:
        del t
        return {
            "score": add_offset(predictions.detach().cpu().double(), examples).numpy(),
            "actual": np.nan_to_num(examples.labels.cpu().numpy(), nan=-1).astype(np.int64),
        }

    def state(self) -> dict[str, Any]:
        return {
            "inputs": inputs_state(self.graph),
            "seed": self.seed,
            "is_bipartite": self.is_bipartite,
            "offset_weights": None if self.offset_weights is None else self.offset_weights.tolist(),
        }

    def describe_pairs(self, t: int, pairs: Examples) -> Examples:
        """Add features, and the log-odds by them."""
        if not self._reads_history:
            return pairs
        return self.history.describe_examples(t, pairs, self.offset_weights, with_features=self.task.pair_features)

    def describe_batch(self, pairs: ListedPairs, ends: tuple[DistinctNodes, DistinctNodes]) -> BatchDescription:
        if not self._reads_history:
            return BatchDescription()
        return self.history.describe_batch(pairs, ends, self.offset_weights, with_features=self.task.pair_features)

    def _fit(self) -> FloatArray:
        """Fit the offset to pairs of the first epoch, equally many of each snapshot."""
        times = self.split.with_examples("train")
        most = max(MAX_FIT_PAIRS // len(times), 1)
        found: list[tuple[Keys, Keys, npt.NDArray[np.float32]]] = []
        for t in times:
            pairs = self._sample_listed_pairs(t, 0, min(self.task.negatives, MAX_FIT_NEGATIVES))
            if pairs is None:
                found.append((np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32)))
                continue
            chosen: Any = slice(None)
            if len(pairs) > most:
                chosen = np.sort(np.random.default_rng([self.seed, t]).permutation(len(pairs))[:most])
            found.append(tuple(each[chosen] for each in (*edge_ends(pairs), pairs.labels.numpy())))
        src, dst, labels = (np.concatenate(each) for each in zip(*found, strict=True))
        ptr = np.cumsum([0, *(len(each[0]) for each in found)])
        design = self.history.describe(ListedPairs(np.array(times), ptr, src, dst)).design(ptr)
        return fit_logistic_pairs(design, labels)

    def candidates(self, t: int) -> Candidates:
        """The nodes that may be destinations of the edges that follow snapshot t."""
        fixed = self._last_training_target if "destinations" in self._first_times else t
        up_to = {"seen": t + self.task.ahead, "destinations": fixed, "sources": t}
        return find_candidates(self._first_times, self.graph.num_nodes, up_to)

    def target_arcs(self, t: int) -> Keys:
        """Ascending keys of the edges that follow snapshot t, both directions of undirected ones."""
        return self._target_edges(t).arcs

    def _target_edges(self, t: int) -> TargetEdges:
        """The target edges of snapshot t, cached as far as they fit."""
        return self._target_edges_cache.get(t, self._read_target_edges)

    def _read_target_edges(self, t: int) -> TargetEdges:
        return TargetEdges.from_snapshot(self.graph[t + self.task.ahead])

    def make_grid(
        self, t: int, src: IntArray, dst: IntArray, candidates: IntArray, log_weight: Tensor | None = None
    ) -> CandidateGrid:
        """Make the grid of the sources of some positives and of candidates, as they are after snapshot t.

        Args:
            t: the snapshot read.
            src: sources of positives, ascending.
            dst: their destinations, which are candidates.
            candidates: node ids, ascending.
            log_weight: see ``CandidateGrid``.
        """
        sources, row = np.unique(src, return_inverse=True)
        grid = CandidateGrid(
            sources=torch.from_numpy(sources),
            candidates=torch.from_numpy(candidates),
            positive=torch.from_numpy(np.stack([row, np.searchsorted(candidates, dst)])),
            related=torch.empty(2, 0, dtype=torch.int64),
            related_features=torch.empty(0, 0),
            log_weight=log_weight,
        )
        if not self._reads_history:
            return grid
        return self.history.describe_grid(t, grid, self.offset_weights, with_features=self.task.pair_features)

    def _find_first_times(self) -> dict[str, FirstTimes]:
        """When nodes first appear as what decides whether they are candidates."""
        needed = {self.task.candidates, *(("sources",) if self.is_bipartite else ())}
        return {kind: FirstTimes(nodes, self.graph) for kind, nodes in NODES_OF.items() if kind in needed}
