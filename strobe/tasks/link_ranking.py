"""Link prediction by ranking: the destination of every edge of a later snapshot among all candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from strobe.errors import OptionError, UnknownNameError
from strobe.graph import DynamicGraph
from strobe.ops.dense.column_scores import ColumnScores
from strobe.ops.dense.factored_scores import PairValues
from strobe.ops.sparse.csr import IntArray
from strobe.tasks.base import Examples, Metrics, Problem, edge_ends
from strobe.tasks.grid import CandidateGrid, rank_in_grid
from strobe.tasks.link_prediction import LinkPrediction, LinkProblem
from strobe.tasks.metrics import rank_metrics
from strobe.tasks.pairs import MAX_NODES, Keys, split_keys
from strobe.tasks.target_edges import TargetEdges

METRICS = ("mrr", "source_mrr", "best_mrr", "map")


@dataclass(frozen=True, kw_only=True)
class LinkRanking(LinkPrediction):
    """Rank the destinations of the edges ``ahead`` of the snapshot read among all candidates.

    Every source of the target snapshot is a query; its edges are the positives, and all other candidates but itself the
    negatives. An undirected edge is a positive of both its ends, with ``both_directions`` a directed one, too:
    published protocols treat graphs as undirected. Candidates are those of ``LinkPrediction`` and the destinations of
    the target snapshot.

    Training minimizes the softmax cross-entropy of each positive against the negatives of its source, estimated from
    ``negatives`` uniform samples of the candidates per snapshot, which all sources share; each source has weight 1.
    Evaluation takes all candidates, or ``eval_negatives`` samples per snapshot. Scores are computed in blocks: a
    product of embeddings for all pairs, and a small network for pairs with a history.

    ``metric`` compares epochs and runs: ``mrr``, of each positive among negatives; ``source_mrr``, the mean over each
    source's positives of one over their position among all candidates, then over sources, then over snapshots
    (EvolveGCN); ``best_mrr``, of the best positive of each source (ROLAND's live update); ``map``.
    """

    name: ClassVar[str] = "link-ranking"
    negatives: int = 1000
    eval_negatives: int | None = None  # type: ignore[assignment]
    max_pairs: int | None = 5_000
    both_directions: bool = False
    metric: str = "mrr"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric not in METRICS:
            raise UnknownNameError("metric of link-ranking", self.metric, METRICS)
        if self.eval_sampling != "uniform":
            raise OptionError(
                f"link-ranking cannot take {self.eval_sampling} negatives: all sources share their candidates; "
                f"choose link-prediction for them"
            )

    def bind(self, graph: DynamicGraph, *, seed: int = 0, state: dict[str, Any] | None = None) -> LinkRankingProblem:
        return LinkRankingProblem(self, graph, seed, state)

    def rebind(self, problem: Problem, graph: DynamicGraph) -> LinkRankingProblem:
        assert isinstance(problem, LinkRankingProblem)
        return LinkRankingProblem(self, graph, problem.seed, problem.state(), problem)


class LinkRankingProblem(LinkProblem):
    """Link ranking on a graph."""

    ranks_candidates = True
    encodes_nodes_once = False
    task: LinkRanking

    def __init__(self, task: LinkRanking, *arguments: Any) -> None:
        super().__init__(task, *arguments)
        self.metric = task.metric  # type: ignore[misc]

    def sample_pairs(self, t: int, epoch: int | None = None) -> Examples | None:
        """The positives of snapshot t, by source, and the candidates they are ranked among."""
        rng, src, dst = self._sample_positives(t, epoch)
        if not len(src):
            return None
        candidates, log_weight = self._sample_candidates(t, dst, epoch, rng)
        return Examples(
            None,
            torch.from_numpy(_source_weights(src)),
            edge_label_index=torch.from_numpy(np.stack([src, dst])),
            candidates=torch.from_numpy(candidates),
            log_weight=log_weight,
        )

    def describe_pairs(self, t: int, pairs: Examples) -> Examples:
        """Add the grid of the positives' sources and the candidates; what ``LinkProblem`` adds where there are none."""
        if pairs.candidates is None:
            return super().describe_pairs(t, pairs)
        src, dst = edge_ends(pairs)
        return replace(pairs, grids=(self.make_grid(t, src, dst, pairs.candidates.numpy(), pairs.log_weight),))

    def loss(self, predictions: Tensor, examples: Examples) -> Tensor:
        losses: Tensor = torch.nn.functional.softplus(-predictions)
        return (losses * examples.labels.to(losses)).sum()

    def metrics(self, predictions: Sequence[Tensor], examples: Sequence[Examples]) -> Metrics:
        if not examples:
            return {}
        return rank_metrics(
            [each.detach().cpu().numpy() for each in predictions], [edge_ends(each)[0] for each in examples]
        )

    def baselines(self, part: str) -> dict[str, Metrics]:
        """The predictors of ``LinkProblem.baselines``, which rank the same candidates."""
        return self.baselines_of(part, {})

    def baselines_of(self, part: str, scored: Mapping[int, Examples]) -> dict[str, Metrics]:
        ranks: dict[str, list[Tensor]] = {}
        sources: list[IntArray] = []
        for t in self.split.with_examples(part):
            examples = scored[t] if t in scored else self.examples(t)
            if examples is None:
                continue
            grid = self._with_history(t, examples.grids[0].to(torch.device("cpu")))
            sources.append(edge_ends(examples)[0])
            scores_of = self.history.grid_scores(t, grid)
            if grid.candidate_offset is not None and grid.related_offset is not None:
                scores_of["history"] = grid.candidate_offset.numpy(), grid.related_offset.numpy()
            for name, (of_candidates, of_related) in scores_of.items():
                some = torch.from_numpy(np.flatnonzero(of_related))  # pairs that never met differ in few baselines
                added = torch.from_numpy(of_related)[some]
                pairs = PairValues.build(grid.related[:, some], added, len(grid.sources))
                scores = ColumnScores(torch.from_numpy(of_candidates), pairs)
                ranks.setdefault(name, []).append(rank_in_grid(grid, scores, tolerance=1e-14))
        return {name: rank_metrics([each.numpy() for each in found], sources) for name, found in ranks.items()}

    def _with_history(self, t: int, grid: CandidateGrid) -> CandidateGrid:
        """The grid with related pairs, also where the model does not read them."""
        if self.task.pair_features or self.task.from_history:
            return grid
        related, features = self.history.related_pairs(t, grid.sources.numpy(), grid.candidates.numpy())
        return replace(grid, related=torch.from_numpy(related), related_features=torch.from_numpy(features))

    def _sample_candidates(
        self, t: int, positives: Keys, epoch: int | None, rng: np.random.Generator
    ) -> tuple[Keys, Tensor | None]:
        """Candidates of a snapshot, ascending: all or a sample, and the destinations of positives."""
        candidates = self.candidates(t)
        most = self.task.eval_negatives if epoch is None else self.task.negatives
        number = candidates.num_nodes if most is None else min(most, candidates.num_nodes)
        if number == candidates.num_nodes:
            nodes = candidates.nodes_at(np.arange(number))
            return np.union1d(nodes, positives), None
        sampled = candidates.nodes_at(rng.choice(candidates.num_nodes, number, replace=False, shuffle=False))
        nodes = np.union1d(sampled, positives)
        if epoch is None:  # destinations of others would be negatives more often than other candidates
            return nodes, torch.from_numpy(np.where(np.isin(nodes, sampled), 0.0, -np.inf))
        certain = np.isin(nodes, positives)
        return nodes, torch.from_numpy(np.where(certain, 0.0, np.log(candidates.num_nodes / number)))

    def _read_target_edges(self, t: int) -> TargetEdges:
        future = super()._read_target_edges(t)
        if not self.graph.directed or not self.task.both_directions:
            return TargetEdges(future.arcs, future.arcs)
        src, dst = split_keys(future.arcs)
        arcs = np.union1d(future.arcs, dst * MAX_NODES + src)
        return TargetEdges(arcs, arcs)


def _source_weights(src: IntArray) -> npt.NDArray[np.float32]:
    """One over the number of positives that have the same source; sources ascend."""
    _, row, count = np.unique(src, return_inverse=True, return_counts=True)
    return (1 / count[row]).astype(np.float32)
