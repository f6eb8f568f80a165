"""The history of edges: features of pairs, a logistic regression on them, and when nodes were first seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from strobe.graph import DynamicGraph, Snapshot
from strobe.ops.dense.logistic import PairDesign
from strobe.ops.graph.edge_times import NUM_ACTIVITY, NUM_MEETINGS, EdgeTimes, Features
from strobe.ops.graph.listed_pairs import (
    DistinctNodes,
    ListedPairs,
    describe_nodes,
    find_listed_related,
    sum_ends,
)
from strobe.ops.graph.related_pairs import find_related_pairs
from strobe.ops.sparse.csr import FloatArray, IntArray
from strobe.tasks.base import Examples, edge_ends
from strobe.tasks.grid import CandidateGrid
from strobe.tasks.pair_batch import BatchDescription, PairBatch
from strobe.tasks.pairs import Keys, unique_arcs
from strobe.tasks.target_edges import Candidates

BATCH_ARCS = 1 << 20
"""Arcs of several snapshots that are sorted at once, at least."""


class DescribedPairs(NamedTuple):
    """Features of pairs: of their ends once per node, of pairs where they are not all 0.

    Args:
        row: the position of each pair's source among distinct sources, [n].
        column: the same of destinations, [n].
        of_sources: features of sources, [S, K].
        of_destinations: features of destinations, [D, K].
        related: pairs whose features are not all 0, in order of rows, ascending for each row, [R].
        of_pairs: their features, [R, P].
    """

    row: npt.NDArray[np.int32]
    column: npt.NDArray[np.int32]
    of_sources: Features
    of_destinations: Features
    related: npt.NDArray[np.int64]
    of_pairs: Features

    @classmethod
    def of_batch(cls, batch: PairBatch) -> DescribedPairs:
        """The features of a batch that has any."""
        of_sources, of_destinations = batch.sources.features, batch.destinations.features
        assert of_sources is not None
        assert of_destinations is not None
        arrays = (batch.row, batch.column, of_sources, of_destinations, batch.related, batch.related_features)
        return cls(*(each.cpu().numpy() for each in arrays))

    def side_by_side(self) -> Features:
        """Features of sources, of destinations and of pairs, a row per pair, [n, 2 K + P]."""
        size = self.of_sources.shape[1]
        out = np.zeros((len(self.row), 2 * size + self.of_pairs.shape[1]), np.float32)
        np.take(self.of_sources, self.row, axis=0, out=out[:, :size], mode="clip")
        np.take(self.of_destinations, self.column, axis=0, out=out[:, size : 2 * size], mode="clip")
        out[self.related, 2 * size :] = self.of_pairs
        return out

    def design(self, ptr: IntArray) -> PairDesign:
        """The columns of the regression of pairs of several snapshots, which begin at ``ptr``."""
        return PairDesign(*self, ptr)

    def log_odds(self, weights: FloatArray) -> FloatArray:
        """Log-odds by coefficients of the columns of ``design``, [n]."""
        size = self.of_sources.shape[1]
        intercept, of_source, of_destination, of_pair = np.split(weights, [1, 1 + size, 1 + 2 * size])
        of_rows, of_columns = self.of_sources @ of_source + intercept, self.of_destinations @ of_destination
        found = sum_ends(self.row, self.column, of_rows, of_columns)
        found[self.related] += self.of_pairs @ of_pair[:-1] + of_pair[-1]
        return found

    def scorers(self) -> dict[str, Callable[[], FloatArray]]:
        """Functions that give the scores of pairs by trivial predictors, [n] each: 8 bytes a pair while they are in
        use."""
        none = np.zeros((len(self.of_destinations), self.of_pairs.shape[1]), np.float32)
        without = _trivial_scores(none, self.of_destinations)
        known = _trivial_scores(self.of_pairs, self.of_destinations[self.column[self.related]])

        def score(name: str) -> FloatArray:
            found: FloatArray = without[name][self.column]
            found[self.related] = known[name]
            return found

        return {name: partial(score, name) for name in without}

    def scores(self) -> dict[str, FloatArray]:
        """Scores of pairs by trivial predictors, [n] each."""
        return {name: score() for name, score in self.scorers().items()}


class EdgeHistory:
    """All edges of all snapshots read so far, parallel edges once and without self-loops.

    Features of a snapshot never depend on later ones, so one history serves all snapshots, even while it grows: new
    snapshots are read once. One costs its arcs, and a copy of the pairs if any is new.
    """

    def __init__(self, graph: DynamicGraph) -> None:
        self._times, self._num_read = EdgeTimes(directed=graph.directed), 0
        self.update(graph)

    def update(self, graph: DynamicGraph) -> None:
        """Read the snapshots of a graph that were not read before, many at a time."""
        while self._num_read < len(graph):
            arcs, first = [unique_arcs(graph[self._num_read])], self._num_read
            most, number = max(BATCH_ARCS, self._times.num_pairs), len(arcs[0][0])
            while first + len(arcs) < len(graph) and number < most:
                arcs.append(unique_arcs(graph[first + len(arcs)]))
                number += len(arcs[-1][0])
            self._num_read = first + len(arcs)
            times = np.repeat(np.arange(first, self._num_read), [len(src) for src, _ in arcs])
            src, dst = (np.concatenate([each[end] for each in arcs]) for end in (0, 1))
            self._times.append(src, dst, times, graph.num_nodes)

    @property
    def num_node_features(self) -> int:
        """Features of each end of a pair."""
        return self._times.num_node_features

    @property
    def num_pair_features(self) -> int:
        """Features of a pair besides those of its ends."""
        return self._times.num_pair_features

    def features(self, t: int, src: IntArray, dst: IntArray) -> Features:
        """Features of the sources, of the destinations and of the pairs at snapshot t, side by side."""
        return self.describe(ListedPairs.of_snapshot(t, src, dst)).side_by_side()

    def describe(self, pairs: ListedPairs, ends: tuple[DistinctNodes, DistinctNodes] | None = None) -> DescribedPairs:
        """Features of listed pairs of several snapshots, given their distinct sources and destinations if known."""
        ends = ends or (DistinctNodes.find(pairs.ptr, pairs.src), DistinctNodes.find(pairs.ptr, pairs.dst))
        of_source, of_destination = (describe_nodes(self._times, pairs.times, end) for end in ends)
        related = find_listed_related(self._times, pairs, ends[0])
        return DescribedPairs(ends[0].position, ends[1].position, of_source, of_destination, *related)

    def node_features(self, t: int, nodes: IntArray) -> Features:
        """Features of nodes at snapshot t (``EdgeTimes.node_features``)."""
        return self._times.node_features(t, nodes)

    def past_pairs(self, sources: IntArray, since: int, until: int) -> tuple[Keys, Keys]:
        """Position of the source and destination of the arcs of some sources whose first snapshot is ``since`` up to
        ``until``, in order of sources, then destinations."""
        return self._times.arcs_first_in(sources, since, until)

    def related_pairs(self, t: int, sources: IntArray, candidates: IntArray) -> tuple[IntArray, Features]:
        """Positions and features of the pairs of sources and candidates with a history (``find_related_pairs``)."""
        return find_related_pairs(self._times, t, sources, candidates)

    def describe_grid(
        self, t: int, grid: CandidateGrid, offset_weights: FloatArray | None, *, with_features: bool
    ) -> CandidateGrid:
        """Add related pairs, features of sources and candidates, and offsets at snapshot t to a grid.

        Args:
            t: the snapshot read.
            grid: sources and candidates.
            offset_weights: of the regression that offsets come from; None without offsets.
            with_features: whether the head reads features.
        """
        ends = [self.node_features(t, nodes.numpy()) for nodes in (grid.sources, grid.candidates)]
        related, features = self.related_pairs(t, grid.sources.numpy(), grid.candidates.numpy())
        grid = replace(grid, related=torch.from_numpy(related), related_features=torch.from_numpy(features))
        if with_features:
            of_sources, of_candidates = map(torch.from_numpy, ends)
            grid = replace(grid, source_features=of_sources, candidate_features=of_candidates)
        if offset_weights is None:
            return grid
        size = self.num_node_features
        intercept, of_source, of_destination, of_pair = np.split(offset_weights, [1, 1 + size, 1 + 2 * size])
        return replace(
            grid,
            source_offset=torch.from_numpy(ends[0] @ of_source + intercept),
            candidate_offset=torch.from_numpy(ends[1] @ of_destination),
            related_offset=torch.from_numpy(features @ of_pair[:-1] + of_pair[-1]),
        )

    def describe_batch(
        self,
        pairs: ListedPairs,
        ends: tuple[DistinctNodes, DistinctNodes],
        offset_weights: FloatArray | None,
        *,
        with_features: bool,
    ) -> BatchDescription:
        """Describe the pairs of several snapshots; arguments as of ``describe_grid``."""
        found = self.describe(pairs, ends)
        offset = None if offset_weights is None else torch.from_numpy(found.log_odds(offset_weights))
        if not with_features:
            return BatchDescription(offset=offset)
        of_nodes = torch.from_numpy(found.of_sources), torch.from_numpy(found.of_destinations)
        return BatchDescription(*of_nodes, torch.from_numpy(found.related), torch.from_numpy(found.of_pairs), offset)

    def describe_examples(
        self, t: int, pairs: Examples, offset_weights: FloatArray | None, *, with_features: bool
    ) -> Examples:
        """Add features, and the log-odds by them, to listed pairs; arguments as of ``describe_grid``."""
        found = self.describe(ListedPairs.of_snapshot(t, *edge_ends(pairs)))
        if offset_weights is not None:
            pairs = replace(pairs, offset=torch.from_numpy(found.log_odds(offset_weights)))
        return replace(pairs, features=torch.from_numpy(found.side_by_side())) if with_features else pairs

    def scorers(
        self, t: int, examples: Examples, offset_weights: FloatArray | None
    ) -> dict[str, Callable[[], FloatArray]]:
        """Functions that give the scores of pairs by trivial predictors, and by the offset as ``history``; features
        of pairs that the evaluation has described are not computed again."""
        batch = examples.pairs
        if batch is None or batch.destinations.features is None:
            pairs = self.describe(ListedPairs.of_snapshot(t, *edge_ends(examples)))
            found = pairs.scorers()
            if offset_weights is not None:
                found["history"] = partial(pairs.log_odds, offset_weights)
            return found
        found = DescribedPairs.of_batch(batch).scorers()
        if examples.offset is not None:
            found["history"] = examples.offset.cpu().numpy
        return found

    def scores(self, t: int, src: IntArray, dst: IntArray) -> dict[str, FloatArray]:
        """Scores of pairs by trivial predictors, which read edges up to snapshot t."""
        return self.describe(ListedPairs.of_snapshot(t, src, dst)).scores()

    def grid_scores(self, t: int, grid: CandidateGrid) -> dict[str, tuple[FloatArray, FloatArray]]:
        """Scores of ``scores`` for a grid: those of candidates without a history with the source, and what is added to
        them for related pairs."""
        nodes = self.node_features(t, grid.candidates.numpy())
        column, pairs = grid.related[1].numpy(), grid.related_features.numpy()
        without = _trivial_scores(np.zeros((len(nodes), pairs.shape[1]), np.float32), nodes)
        known = _trivial_scores(pairs, nodes[column])
        return {name: (without[name], values - without[name][column]) for name, values in known.items()}


def _trivial_scores(pairs: Features, nodes: Features) -> dict[str, FloatArray]:
    """Scores by the features of pairs and of their destinations."""
    pairs, nodes = pairs.astype(np.float64), nodes.astype(np.float64)
    reached = nodes[:, -NUM_ACTIVITY:]  # of the destination, in directed graphs by edges to it
    met, recency = pairs[:, NUM_MEETINGS - 1] > 0, pairs[:, 1]
    popularity = np.expm1(reached[:, NUM_ACTIVITY - 2]).round()
    # Pairs that have met come first, the last meeting first; others by the destination's last edge, then its edges.
    others = reached[:, NUM_ACTIVITY - 1] - 1e-9 * (1 - popularity / (1 + popularity))
    return {
        "last snapshot": pairs[:, 0],
        "edgebank": met.astype(np.float64),
        "popularity": popularity,
        "most recent": np.where(met, 2 + recency, others),
    }


class FirstTimes:
    """The first snapshot that each node is in, by some definition of being in it: 4 bytes per node."""

    _NEVER = np.iinfo(np.int32).max

    def __init__(self, nodes_of: Callable[[Snapshot], IntArray], graph: DynamicGraph) -> None:
        self._nodes_of, self._num_read = nodes_of, 0
        self._first = np.empty(0, np.int32)
        self.update(graph)

    def update(self, graph: DynamicGraph) -> None:
        """Read the snapshots of a graph that were not read before."""
        new = graph.num_nodes - len(self._first)
        self._first = np.pad(self._first, (0, max(new, 0)), constant_values=self._NEVER)
        for t in range(self._num_read, len(graph)):
            nodes = self._nodes_of(graph[t])
            self._first[nodes] = np.minimum(self._first[nodes], t)
        self._num_read = max(self._num_read, len(graph))

    def is_in(self, t: int, num_nodes: int) -> npt.NDArray[np.bool_]:
        """Whether each of the first ``num_nodes`` nodes is in a snapshot up to t."""
        return self._first[:num_nodes] <= t


def source_nodes(snapshot: Snapshot) -> IntArray:
    """The nodes with an edge to another node, with repetitions."""
    return unique_arcs(snapshot)[0]


def destination_nodes(snapshot: Snapshot) -> IntArray:
    """The nodes with an edge from another node, with repetitions."""
    return unique_arcs(snapshot)[1]


def present_nodes(snapshot: Snapshot) -> IntArray:
    """The nodes of a snapshot."""
    return snapshot.nodes


NODES_OF = {"seen": present_nodes, "destinations": destination_nodes, "sources": source_nodes}
"""What a node's first time can be of, by the name that ``LinkPrediction`` has for it."""


def find_candidates(first_times: Mapping[str, FirstTimes], num_nodes: int, up_to: Mapping[str, int]) -> Candidates:
    """The nodes that are in all kinds ``first_times`` of ``NODES_OF`` by the snapshots ``up_to``; those in ``sources``
    are left out instead."""
    chosen = np.ones(num_nodes, bool)
    for kind, times in first_times.items():
        chosen &= times.is_in(up_to[kind], num_nodes) != (kind == "sources")
    if chosen.all():
        return Candidates(num_nodes)
    nodes = np.flatnonzero(chosen)
    return Candidates(len(nodes), nodes)
