"""Scores of any pairs of nodes after a snapshot, in blocks: all candidates of some sources, or listed pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from strobe.engine.forward import embeddings, place_grid, predict_examples
from strobe.engine.windows import Window
from strobe.ops.graph.edge_times import NUM_ACTIVITY
from strobe.ops.sparse.csr import FloatArray, IntArray
from strobe.tasks.base import Examples, Problem
from strobe.tasks.calibration import edge_rate
from strobe.tasks.heads import GridScorer, PairDecoder
from strobe.tasks.link_prediction import LinkProblem
from strobe.tasks.link_ranking import LinkRankingProblem

SOURCES_PER_GRID = 256
"""Sources whose related pairs are in memory at a time."""

PAIRS_PER_PART = 1 << 18
"""Listed pairs whose features are in memory at a time."""


@dataclass(frozen=True, eq=False)
class LinkScorer:
    """Scores of the edges that follow snapshot t.

    Args:
        problem: the problem.
        head: the decoder.
        t: the snapshot read.
        z: embeddings, the last one that of nodes that no snapshot has had.
        rows: the row of each node's latest embedding in z, [N].
    """

    problem: LinkProblem
    head: PairDecoder
    t: int
    z: Tensor
    rows: Tensor

    def candidates(self) -> IntArray:
        """Nodes that may be destinations, ascending."""
        found = self.problem.candidates(self.t)
        return found.nodes_at(np.arange(found.num_nodes))

    def sources(self) -> IntArray:
        """Nodes that may be sources, ascending: the candidates; in a bipartite graph all other nodes."""
        candidates = self.candidates()
        if not self.problem.is_bipartite:
            return candidates
        return np.setdiff1d(np.arange(self.problem.graph.num_nodes), candidates)

    @torch.no_grad()
    def blocks(self, sources: IntArray, candidates: IntArray) -> Iterator[tuple[IntArray, Tensor]]:
        """Yield sources and their scores with all candidates, [b, M]; -inf for a node with itself.

        Holds one block of scores and the related pairs of ``SOURCES_PER_GRID`` sources.

        Args:
            sources: distinct nodes, ascending.
            candidates: distinct nodes, ascending.
        """
        for start in range(0, len(sources), SOURCES_PER_GRID):
            here = sources[start : start + SOURCES_PER_GRID]
            grid = self.problem.make_grid(self.t, here, np.zeros_like(here), candidates)
            rows = self.rows[torch.from_numpy(here).to(self.rows.device)], self._rows_of(candidates)
            z, grid = place_grid(
                self.z, replace(grid, positive=torch.empty(2, 0, dtype=torch.int64), log_weight=None, rows=rows)
            )
            same = grid.same_node
            for first, scores in GridScorer(self.head, z, grid).blocks():
                row, column = same[:, (same[0] >= first) & (same[0] < first + len(scores))]
                scores[row - first, column] = -torch.inf
                yield here[first : first + len(scores)], scores

    @torch.no_grad()
    def pair_scores(self, src: IntArray, dst: IntArray) -> FloatArray:
        """Scores of listed pairs, [n], float64."""
        found = [np.empty(0)]
        for start in range(0, len(src), PAIRS_PER_PART):
            here = slice(start, start + PAIRS_PER_PART)
            index = torch.from_numpy(np.stack([src[here], dst[here]]).astype(np.int64, copy=False))
            pairs = Examples(None, torch.zeros(index.shape[1]), edge_label_index=index)
            described = LinkProblem.describe_pairs(self.problem, self.t, pairs)
            rows = self._rows_of(src[here]), self._rows_of(dst[here])
            scores = predict_examples(self.head, self.z, replace(described, cell_index=rows)).double()
            found.append((scores if described.offset is None else scores + described.offset).numpy())
        return np.concatenate(found)

    def edge_rates(self, nodes: IntArray) -> FloatArray:
        """The expected number of edges of sources in the target snapshot, from edges up to snapshot t, [n]."""
        counts = self.problem.history.node_features(self.t, nodes).astype(np.float64)
        both = isinstance(self.problem, LinkRankingProblem) and self.problem.task.both_directions
        if both and self.problem.graph.directed:
            counts = np.log1p(np.expm1(counts[:, :NUM_ACTIVITY]) + np.expm1(counts[:, NUM_ACTIVITY:]))
        return edge_rate(counts, self.t)

    def _rows_of(self, nodes: IntArray) -> Tensor:
        return self.rows[torch.from_numpy(nodes).to(self.rows.device)]


def link_scorers(
    model: nn.Module,
    head: nn.Module,
    problem: LinkProblem,
    windows: Iterable[Window],
    times: range,
    on_snapshot: Callable[[int], None] | None = None,
) -> Iterator[LinkScorer]:
    """Yield a scorer per snapshot of ``times``; windows start with the first snapshot that the model reads."""
    assert isinstance(head, PairDecoder)
    model.eval()
    head.eval()
    nodes = torch.arange(problem.graph.num_nodes)
    every_node = Examples(None, torch.zeros(len(nodes)), edge_label_index=torch.stack([nodes, nodes]))
    make = lambda _: every_node  # noqa: E731
    for t, z, local in embeddings(model, head, cast(Problem, _NodesAsPairs()), windows, times, make, on_snapshot):
        assert local.examples.cell_index is not None
        yield LinkScorer(problem, head, t, z, local.examples.cell_index[0])


class _NodesAsPairs:
    """What ``embeddings`` reads of a problem whose examples are all nodes, each paired with itself, without features:
    their rows are those of each node's latest embedding."""

    is_edge_level = True
    encodes_nodes_once = False
    thread_safe = False

    def describe_pairs(self, t: int, pairs: Examples) -> Examples:
        del t
        return pairs
