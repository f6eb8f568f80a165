"""Placement of chunks of cells that are connected along edges and in time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from strobe.comm import NO_RANK
from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.io.lazy_import import lazy_import
from strobe.ops.graph.label_propagation import Labels, Links, Sums, Weights, coarsen, compact_labels, propagate
from strobe.ops.runtime.njit import cached_njit
from strobe.ops.sparse.csr import FloatArray, distinct
from strobe.placement.algorithms.chunk_graph import (
    count_cell_loads,
    cut_bytes,
    expected_sequence_length,
    link_cells,
    loads_of_chunks,
    nodes_of_cells,
    sizes_of_chunks,
)
from strobe.placement.algorithms.metis import part_graph, relabel_to_match
from strobe.placement.base import Partition, Placement, PlacementRequest, split_at_windows
from strobe.placement.metis import Metis
from strobe.placement.model_costs import ModelCosts
from strobe.strategy import Fact

if TYPE_CHECKING:
    import scipy.sparse as sp
else:
    sp = lazy_import("scipy.sparse")


@dataclass(frozen=True, kw_only=True)
class Chunks(Placement):
    """Chunks of cells connected along edges and in time, assigned to ranks so that few bytes are sent.

    Chunks grow by label propagation, with links weighted by the bytes the model sends along edges and sequences, up to
    1 / ``per_rank`` of a rank's load. Half and twice as many chunks are tried, too; the fewest bytes win. Ranks are
    even in every window.

    Args:
        per_rank: chunks per rank.
        assign: by ``metis`` on the graph of chunks, by ``score`` (Chen et al. 2023, Algorithm 1), or by METIS on
            ``cells``.
        refine: afterwards move single cells to the rank with which they share most bytes.
        rounds: maximum rounds of label propagation.
        loads: ``counted`` cells and arcs, or seconds ``predicted`` from chunks measured on this machine.
    """

    name: ClassVar[str] = "chunks"
    gives: ClassVar[tuple[Fact, ...]] = ("chunks",)
    needs_model_costs: ClassVar[bool] = True
    per_rank: int = 16
    assign: Literal["metis", "score", "cells"] = "metis"
    refine: bool = True
    rounds: int = 6
    loads: Literal["counted", "predicted"] = "counted"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.per_rank < 1:
            raise OptionError(f"per_rank of {self.name} must be at least 1, not {self.per_rank}")
        if self.rounds < 1:
            raise OptionError(f"rounds of {self.name} must be at least 1, not {self.rounds}")

    @property
    def needs_measured_loads(self) -> bool:
        return self.loads == "predicted"

    def partition(self, request: PlacementRequest) -> Partition:
        graph, num_ranks = request.graph, request.num_ranks
        cell_owner, cell_chunk = np.zeros(graph.num_cells, np.int16), np.zeros(graph.num_cells, np.int32)
        last = np.full(graph.num_nodes, NO_RANK, np.int16)
        first = 0
        for span in split_at_windows(request.windows, len(graph)):
            part, cells = graph[span.start : span.stop], slice(*graph.cell_ptr[[span.start, span.stop]].tolist())
            if cells.start == cells.stop:
                continue
            nodes = nodes_of_cells(part)
            owner, chunk = Chunking(self, part, num_ranks, request.seed, request.costs).assign()
            cell_owner[cells], cell_chunk[cells] = relabel_to_match(owner, last[nodes], num_ranks), chunk + first
            last[nodes] = cell_owner[cells]  # the last cell of each node wins
            first += int(chunk.max()) + 1
        return replace(Partition.by_cell(num_ranks, cell_owner, graph), cell_chunk=cell_chunk)


CONVERGED_SHARE = 0.9
"""Growth ends with the level that leaves at least this share of its chunks."""


@dataclass(frozen=True, eq=False)
class ChunkGraph:
    """Chunk of every cell, links between chunks, and their sizes."""

    cell_chunk: Labels  # [C]
    links: Links
    size: Sums  # [K]


def grow_chunks(links: Links, size: Sums, limit: int, *, rounds: int, seed: int = 0) -> ChunkGraph:
    """Grow chunks by label propagation of cells, then of chunks, until few merge.

    No chunk of several cells is larger than ``limit``.
    """
    cell_chunk = np.arange(links.num_vertices, dtype=np.int32)
    while True:
        label, _ = propagate(links, size, limit, rounds=rounds, seed=seed)
        chunk, num_chunks = compact_labels(label)
        before = links.num_vertices
        cell_chunk = chunk[cell_chunk]
        links = coarsen(links, chunk, num_chunks)
        size = np.bincount(chunk, size, num_chunks).astype(np.int64)
        if num_chunks >= CONVERGED_SHARE * before:
            return ChunkGraph(cell_chunk, links, size)


def split_by_owner(chunk: Labels, owner: Labels, num_owners: int) -> Labels:
    """Split chunks with several owners into one chunk per owner, numbered from 0."""
    pair = chunk.astype(np.int64) * num_owners + owner
    return np.searchsorted(distinct(pair), pair).astype(np.int32)


def assign_by_score(links: Links, load: Sums, num_ranks: int) -> Labels:
    """Assign chunks by descending load to the rank with the largest (mean load - its load) * (shared bytes), [K].

    Ranks above the mean load are excluded; ties and chunks without shared bytes go to the rank with the least load.
    ``links.before`` and ``links.after`` are ignored.
    """
    order = np.argsort(-load, kind="stable")
    owner = np.full(len(load), -1, np.int32)
    mean = float(load.sum() / num_ranks)
    _assign_greedily(order, links.row_ptr, links.col, links.weight, load.astype(np.float64), mean, num_ranks, owner)
    return owner


def assign_by_metis(links: Links, load: Sums, num_ranks: int, seed: int = 0) -> Labels:
    """Assign chunks or cells by METIS. Links of weight 0 are dropped, since METIS rounds weights up to 1."""
    weight = np.broadcast_to(links.weight, links.col.shape) if len(links.weight) == 1 else links.weight
    positive = weight > 0
    entries = [np.maximum(np.rint(weight[positive]), 1).astype(np.int64)]
    rows = np.repeat(np.arange(links.num_vertices, dtype=np.int32), np.diff(links.row_ptr))
    ends: Any = [rows[positive]], [links.col[positive]]
    later = np.flatnonzero(links.before >= 0).astype(np.int32)
    if len(later) and links.chain > 0:
        chain = np.full(len(later), max(round(links.chain), 1), np.int64)
        entries += [chain, chain]
        ends[0].extend([later, links.before[later]])
        ends[1].extend([links.before[later], later])
    size = (links.num_vertices, links.num_vertices)
    ends = np.concatenate(ends[0]), np.concatenate(ends[1])
    adjacency = sp.coo_array((np.concatenate(entries), ends), shape=size).tocsr()
    return part_graph(adjacency, load, num_ranks, seed).astype(np.int32)


def to_integer_loads(load: FloatArray) -> Sums:
    """Scale loads to integers, whose sums are exact."""
    total = float(load.sum())
    if not total:
        return np.ones(len(load), np.int64)
    scaled: Sums = np.maximum(np.rint(load * ((1 << 40) / total)), 1).astype(np.int64)
    return scaled


@cached_njit
def _assign_greedily(
    order: Sums,
    row_ptr: Sums,
    col: Labels,
    weight: Weights,
    load: FloatArray,
    mean: float,
    num_ranks: int,
    owner: Labels,
) -> None:
    has = np.zeros(num_ranks)
    shared = np.zeros(num_ranks)
    single = len(weight) == 1
    for chunk in order:
        shared[:] = 0
        for j in range(row_ptr[chunk], row_ptr[chunk + 1]):
            if owner[col[j]] >= 0:
                shared[owner[col[j]]] += weight[0] if single else weight[j]
        best, most = int(np.argmin(has)), 0.0
        for rank in range(num_ranks):
            score = (mean - has[rank]) * shared[rank]
            better = score > most or (score == most and has[rank] < has[best])
            if has[rank] < mean and better:
                best, most = rank, score
        owner[chunk] = best
        has[best] += load[chunk]


MAX_LOAD_RATIO = 1.15
"""Maximum ratio of largest to smallest load of ranks that counts as even."""

GRANULARITIES = (0.5, 1.0, 2.0)
"""Multiples of ``per_rank`` that are tried: few large chunks cut fewer bytes, many small ones are more even."""

FINEST_GRANULARITY = 4.0
"""Tried last if none is even."""

REFINE_SLACK = 1.02
"""Maximum load of a rank during refinement, relative to the mean."""

CUT_COSTS = (1 / 16, 0.25, 1.0, 4.0)
"""Costs of cutting a sequence that are tried, relative to a cut at a random position. The actual cost depends on where
cuts end up."""

Assignment = tuple[Labels, Labels]
"""Owner and chunk of every cell."""


@dataclass(frozen=True, eq=False)
class ChunkingTrial:
    """A candidate assignment with its ratio of largest to smallest load."""

    load_ratio: float
    assignment: Assignment


@dataclass(frozen=True, eq=False)
class Chunking:
    """Chunking and assignment of one span of snapshots."""

    options: Chunks
    graph: DynamicGraph
    num_ranks: int
    seed: int
    costs: ModelCosts

    def assign(self) -> Assignment:
        """The even assignment that cuts the fewest bytes."""
        links, costs = self._links, self.costs
        if self.num_ranks == 1:
            return self._try(links, 1.0).assignment
        if not costs.cell_bytes:
            return self._choose(self._try(links, grain) for grain in GRANULARITIES).assignment
        cut_cost = costs.cell_bytes * expected_sequence_length(self.graph) / 4  # half the shorter side, on average
        chains = [replace(links, chain=costs.state_bytes + scale * cut_cost) for scale in CUT_COSTS]
        trials = [self._try(each, 1.0) for each in chains]
        return self._choose([*trials, self._whole_sequences(trials[-1].assignment[1])]).assignment

    def _choose(self, trials: Iterable[ChunkingTrial]) -> ChunkingTrial:
        candidates = list(trials)
        if not any(each.load_ratio <= MAX_LOAD_RATIO for each in candidates):
            candidates.append(self._try(self._links, FINEST_GRANULARITY))
        even = [each for each in candidates if each.load_ratio <= MAX_LOAD_RATIO]
        if even:
            return min(even, key=lambda each: self._cut_bytes(each.assignment[0]))
        return min(candidates, key=lambda each: each.load_ratio)

    @cached_property
    def _links(self) -> Links:
        return link_cells(self.graph, self.costs.arc_bytes, self.costs.state_bytes)

    @cached_property
    def _size(self) -> Sums:
        return count_cell_loads(self.graph)

    def _cut_bytes(self, owner: Labels) -> float:
        return cut_bytes(self.graph, self._links, owner, self.num_ranks, self.costs)

    def _whole_sequences(self, chunk: Labels) -> ChunkingTrial:
        node_owner = Metis().place(self.graph, (), self.num_ranks, seed=self.seed).node_owner
        owner = node_owner[nodes_of_cells(self.graph)].astype(np.int32)
        return self._make_trial(owner, chunk, self._size)

    def _try(self, links: Links, grain: float) -> ChunkingTrial:
        """Grow and assign chunks of one granularity."""
        limit = int(self._size.sum() / (self.num_ranks * self.options.per_rank * grain))
        grown = grow_chunks(links, self._size, limit, rounds=self.options.rounds, seed=self.seed)
        sizes = sizes_of_chunks(self.graph, grown.cell_chunk, len(grown.size))
        load = loads_of_chunks(sizes, self.num_ranks, self.costs)
        of_cells = to_integer_loads(self._size * (load / grown.size)[grown.cell_chunk])
        owner = self._assign_chunks(replace(grown, size=to_integer_loads(load)), links, of_cells)
        if self.options.refine and self.num_ranks > 1:
            owner = self._refine(links, of_cells, owner)
        return self._make_trial(owner, grown.cell_chunk, of_cells)

    def _make_trial(self, owner: Labels, chunk: Labels, load: Sums) -> ChunkingTrial:
        loads = np.bincount(owner, load, self.num_ranks)
        ratio = float(loads.max() / max(loads.min(), 1))
        return ChunkingTrial(ratio, (owner, split_by_owner(chunk, owner, self.num_ranks)))

    def _assign_chunks(self, grown: ChunkGraph, links: Links, load: Sums) -> Labels:
        if self.num_ranks == 1:
            return np.zeros(len(load), np.int32)
        if self.options.assign == "cells":
            return assign_by_metis(links, load, self.num_ranks, self.seed)
        if self.options.assign == "score":
            return assign_by_score(grown.links, grown.size, self.num_ranks)[grown.cell_chunk]
        return assign_by_metis(grown.links, grown.size, self.num_ranks, self.seed)[grown.cell_chunk]

    def _refine(self, links: Links, load: Sums, owner: Labels) -> Labels:
        """Move cells by label propagation, unless that cuts more bytes (links do not count shared readers)."""
        room = int(load.sum() / self.num_ranks * REFINE_SLACK)
        moved, _ = propagate(links, load, room, rounds=self.options.rounds, seed=self.seed, label=owner)
        return min((moved, owner), key=self._cut_bytes)
