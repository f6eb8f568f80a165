"""Blocks of consecutive snapshots of even load, whole or split within a snapshot, and the choice among candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from strobe.errors import MissingPackageError
from strobe.graph import DynamicGraph, Snapshot
from strobe.io.lazy_import import lazy_import
from strobe.ops.sparse.csr import FloatArray, IntArray, distinct
from strobe.placement.algorithms.metis import bisect_graph, relabel_to_match, snapshot_adjacency
from strobe.placement.base import snapshot_loads, split_evenly
from strobe.placement.hash import Hash
from strobe.placement.loads import loads_of_cells, loads_of_nodes
from strobe.placement.metis import Metis

if TYPE_CHECKING:
    import scipy.sparse as sp
else:
    sp = lazy_import("scipy.sparse")


def balance_blocks(loads: IntArray, num_blocks: int) -> IntArray:
    """Block of each item, [T], minimizing the largest block; moving a single cut makes no two neighbors more even.

    No block is empty if there are enough items.
    """
    if loads.size <= num_blocks:
        return split_evenly(loads.size, num_blocks)
    before = np.concatenate(([0], np.cumsum(loads, dtype=np.int64)))
    cuts = _cuts_within(before, num_blocks, _smallest_limit(before, num_blocks))
    while _even_out(cuts, before):
        pass
    return np.repeat(np.arange(num_blocks), np.diff(cuts))


def _smallest_limit(before: IntArray, num_blocks: int) -> int:
    """Smallest maximum load of a block."""
    low = int(np.diff(before).max())
    high = int(before[-1])
    while low < high:
        middle = (low + high) // 2
        if _reach(before, num_blocks, middle)[-1] == 0:
            high = middle
        else:
            low = middle + 1
    return low


def _reach(before: IntArray, num_blocks: int, limit: int) -> list[int]:
    """First item that the last 0, 1, … ``num_blocks`` blocks can reach within a load limit."""
    firsts = [before.size - 1]
    for _ in range(num_blocks):
        firsts.append(int(np.searchsorted(before, before[firsts[-1]] - limit)))
    return firsts


def _cuts_within(before: IntArray, num_blocks: int, limit: int) -> list[int]:
    """Cuts between blocks: each takes about an even share of the rest, such that later blocks stay within the limit and
    none is empty."""
    reach = _reach(before, num_blocks, limit)
    cuts = [0]
    for behind in range(num_blocks - 1, 0, -1):
        start = cuts[-1]
        earliest = max(start + 1, reach[behind])
        latest = min(before.size - 1 - behind, int(np.searchsorted(before, before[start] + limit, "right")) - 1)
        share = before[start] + (before[-1] - before[start]) / (behind + 1)
        ends = np.arange(earliest, latest + 1)
        cuts.append(int(ends[np.abs(before[ends] - share).argmin()]))
    return [*cuts, before.size - 1]


def _even_out(cuts: list[int], before: IntArray) -> bool:
    """Move every cut to where its two blocks are most even, never enlarging the larger; returns whether one moved."""
    moved = False
    for at in range(1, len(cuts) - 1):
        first, last = cuts[at - 1], cuts[at + 1]
        difference = np.abs(2 * before[first + 1 : last] - before[first] - before[last])
        best = first + 1 + int(difference.argmin())
        if difference[best - first - 1] < difference[cuts[at] - first - 1]:
            cuts[at], moved = best, True
    return moved


_NUM_HASHES = 1 << 15  # largest number of owners in int16


def split_snapshot(graph: DynamicGraph, t: int, shares: FloatArray, slack: float, seed: int = 0) -> IntArray:
    """Split the cells of snapshot t, [n], with few boundary cells, by METIS or, without pymetis, by hash.

    Args:
        graph: the graph.
        t: the snapshot.
        shares: relative load of each part.
        slack: load by which parts may miss their shares for fewer boundary cells.
        seed: seed of METIS or the hash.
    """
    loads = loads_of_cells(graph[t])
    try:
        return _split(snapshot_adjacency(graph[t]), loads, shares, slack, seed)
    except MissingPackageError:
        value = Hash().place(graph, (), _NUM_HASHES, seed=seed).node_owner[graph[t].nodes]
        return _split_in_order(loads, shares, np.argsort(value, kind="stable"))


def _split(adjacency: sp.csr_array, loads: IntArray, shares: FloatArray, slack: float, seed: int) -> IntArray:
    """Bisect recursively. METIS does so itself, but fails on halves without cells."""
    if shares.size == 1 or loads.size <= shares.size:
        return _split_in_order(loads, shares, np.arange(loads.size))
    middle = shares.size // 2
    target = float(loads.sum() * (shares[:middle].sum() / shares.sum()))
    halves = bisect_graph(adjacency, loads, target / float(loads.sum()), seed)
    halves = [_rebalance(half, adjacency, loads, target, slack) for half in halves]
    half = min(halves, key=lambda h: (max(abs(_excess(h, loads, target)), slack), _count_boundary_cells(adjacency, h)))
    part = np.zeros(loads.size, np.int64)
    for begin, end in ((0, middle), (middle, shares.size)):
        cells = np.flatnonzero((half == 0) == (begin == 0))
        inner = adjacency[cells][:, cells].tocsr() if end - begin > 1 else adjacency
        part[cells] = begin + _split(inner, loads[cells], shares[begin:end], slack / 2, seed)
    return part


def _rebalance(half: IntArray, adjacency: sp.csr_array, loads: IntArray, target: float, slack: float) -> IntArray:
    """Move cells from a half with excess load to the other, fewest neighbors left behind first.

    METIS misses loads around hubs with very many neighbors.
    """
    excess = _excess(half, loads, target)
    if abs(excess) <= slack:
        return half
    heavier = half == (0 if excess > 0 else 1)
    left = adjacency @ np.where(heavier, 1, -1)
    cells = np.flatnonzero(heavier & (loads <= abs(excess)))
    cells = cells[np.argsort(left[cells], kind="stable")]
    moved = half.copy()
    moved[cells[np.cumsum(loads[cells]) <= abs(excess)]] ^= 1
    return moved


def _excess(half: IntArray, loads: IntArray, target: float) -> float:
    """Load of half 0 above the target."""
    return float(loads[half == 0].sum()) - target


def _count_boundary_cells(adjacency: sp.csr_array, half: IntArray) -> int:
    """Number of cells with a neighbor in the other half."""
    row = np.repeat(np.arange(half.size), np.diff(adjacency.indptr))
    return distinct(row[half[row] != half[adjacency.indices]]).size


def _split_in_order(loads: IntArray, shares: FloatArray, order: IntArray) -> IntArray:
    """Assign cells in this order to consecutive parts, each by the midpoint of its load."""
    ends = np.cumsum(shares) * (float(loads.sum()) / float(shares.sum()))
    middle = np.cumsum(loads[order]) - loads[order] / 2
    part = np.zeros(loads.size, np.int64)
    part[order] = np.minimum(np.searchsorted(ends, middle), shares.size - 1)
    return part


SNAP_SHARE = 0.015
"""Share of its load by which a block may end earlier or later to keep a snapshot whole, and by which parts of a shared
snapshot may deviate: with two ends the slowest rank has at most 3 % too much."""


@dataclass(frozen=True, eq=False)
class FractionalBlocks:
    """Blocks of equal load that may end within a snapshot; ends are cumulative loads."""

    graph: DynamicGraph
    block_ends: FloatArray  # [W + 1]
    snapshot_ends: FloatArray  # [T + 1]

    @classmethod
    def of(cls, graph: DynamicGraph, num_ranks: int) -> FractionalBlocks:
        """Blocks of equal load; ends near the end of a snapshot snap to it."""
        edges = np.concatenate(([0], np.cumsum(snapshot_loads(graph)))).astype(np.float64)
        share = edges[-1] / num_ranks
        ends = share * np.arange(num_ranks + 1)
        after = np.clip(np.searchsorted(edges, ends), 1, len(graph))
        nearest = np.where(ends - edges[after - 1] < edges[after] - ends, edges[after - 1], edges[after])
        return cls(graph, np.where(np.abs(nearest - ends) <= SNAP_SHARE * share, nearest, ends), edges)

    @property
    def num_ranks(self) -> int:
        return self.block_ends.size - 1

    @property
    def is_pairwise(self) -> bool:
        """Whether at most two ranks share a snapshot, and at least about half of the snapshots are whole."""
        first, last = self._ranks()
        return bool((last - first).max(initial=0) <= 1) and len(self.graph) >= 2 * self.num_ranks

    def owners(self, seed: int = 0) -> list[IntArray]:
        """Owner of every cell of every snapshot."""
        slack = SNAP_SHARE * float(self.snapshot_ends[-1]) / self.num_ranks
        owners: list[IntArray] = []
        for t, (first, last) in enumerate(zip(*self._ranks(), strict=True)):
            if first == last:
                owners.append(np.full(self.graph[t].num_nodes, first, np.int16))
                continue
            shares = np.diff(np.clip(self.block_ends[first : last + 2], *self.snapshot_ends[t : t + 2]))
            owners.append((first + split_snapshot(self.graph, t, shares, slack, seed)).astype(np.int16))
        return owners

    def _ranks(self) -> tuple[IntArray, IntArray]:
        """First and last rank of each snapshot, [T] each."""
        first = np.minimum(np.searchsorted(self.block_ends, self.snapshot_ends[:-1], "right"), self.num_ranks) - 1
        return first, np.maximum(np.searchsorted(self.block_ends, self.snapshot_ends[1:]) - 1, first)


def split_blocks(graph: DynamicGraph, block: IntArray, parts: int, last: IntArray, seed: int = 0) -> list[IntArray]:
    """Owner of every cell of every snapshot: rank block * parts + part.

    Args:
        graph: the graph.
        block: block of each snapshot, ascending, [T].
        parts: parts of nodes per block, by METIS or, without pymetis, by hash.
        last: rank of each node's last cell before, [N], or -1.
        seed: seed of METIS or the hash.
    """
    owners: list[IntArray] = []
    part = np.where(last < 0, -1, last % parts).astype(np.int16)
    starts = np.flatnonzero(np.diff(block, prepend=-1))
    for first, end in zip(starts, [*starts[1:], len(graph)], strict=True):
        piece = graph[first:end]
        present = np.flatnonzero(loads_of_nodes(piece))
        # states change ranks between blocks anyway, so every block has its own, even parts
        part[present] = relabel_to_match(_partition_nodes(piece, parts, seed)[present], part[present], parts)
        owners += [int(block[first]) * parts + part[snapshot.nodes] for snapshot in piece]
    return owners


def _partition_nodes(graph: DynamicGraph, num_parts: int, seed: int) -> IntArray:
    """Part of every node, [N]."""
    try:
        return Metis().place(graph, (), num_parts, seed=seed).node_owner
    except MissingPackageError:
        return Hash().place(graph, (), num_parts, seed=seed).node_owner


MAX_IMBALANCE = 1.05
"""Maximum ratio of largest to mean load of ranks that counts as even."""


@dataclass(frozen=True, eq=False)
class PartitionCandidate:
    """Owners of all cells of a span, the imbalance of ranks, and the rows that they send."""

    owners: list[IntArray]
    imbalance: float
    rows_sent: int


def evaluate_candidate(
    graph: DynamicGraph, owners: list[IntArray], last: IntArray, num_ranks: int
) -> PartitionCandidate:
    """Evaluate the owners of a span's cells; ``last``: rank of each node's last cell before the span, [N], or -1."""
    loads = np.zeros((1, num_ranks), np.int64)
    for snapshot, owner in zip(graph, owners, strict=True):
        loads += np.bincount(owner, loads_of_cells(snapshot), num_ranks).astype(np.int64)
    return PartitionCandidate(owners, imbalance(loads), rows_sent(graph, owners, last))


def choose_candidate(candidates: Sequence[PartitionCandidate]) -> PartitionCandidate:
    """Of the candidates within the imbalance limit, the one that sends the fewest rows."""
    limit = imbalance_limit(candidates)
    return min((each for each in candidates if each.imbalance <= limit), key=lambda each: each.rows_sent)


def imbalance_limit(candidates: Sequence[PartitionCandidate]) -> float:
    """Maximum imbalance: ``MAX_IMBALANCE``, relative to the most even candidate if none is even."""
    least = min(each.imbalance for each in candidates)
    return MAX_IMBALANCE if least <= MAX_IMBALANCE else MAX_IMBALANCE * least


def imbalance(loads: IntArray) -> float:
    """Sum over spans of the largest load over the mean load; loads are [spans, ranks]."""
    mean = float(loads.mean(axis=1).sum())
    return float(loads.max(axis=1).sum()) / mean if mean else 1.0


def rows_sent(graph: DynamicGraph, owners: Sequence[IntArray], last: IntArray) -> int:
    """Rows sent by one sparse product and one pass along all sequences: every cell once per remote rank that reads it,
    and a state wherever a sequence changes ranks."""
    last, rows = last.copy(), 0
    for snapshot, owner in zip(graph, owners, strict=True):
        before = last[snapshot.nodes]
        rows += int(((before >= 0) & (before != owner)).sum()) + _count_remote_reads(snapshot, owner)
        last[snapshot.nodes] = owner
    return rows


def _count_remote_reads(snapshot: Snapshot, owner: IntArray) -> int:
    if (owner == owner[:1]).all():
        return 0
    read, reader = snapshot.arcs()
    cut = owner[read] != owner[reader]
    return distinct(owner[reader[cut]].astype(np.int64) * snapshot.num_nodes + read[cut]).size
