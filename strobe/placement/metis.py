"""METIS on the union of all snapshots, on each snapshot, on the union of the snapshots so far, or on the first one."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import Any, ClassVar

import numpy as np

from strobe.comm import NO_RANK
from strobe.errors import OptionError
from strobe.graph import Snapshot
from strobe.ops.graph.pair_counts import add_pairs, empty_pairs, extract_pairs, to_symmetric_csr
from strobe.ops.sparse.csr import IntArray
from strobe.placement.algorithms.metis import (
    assign_absent_nodes,
    chunk_nodes,
    part_graph,
    relabel_to_match,
    snapshot_adjacency,
    union_adjacency,
)
from strobe.placement.base import Partition, Placement, PlacementRequest
from strobe.placement.loads import loads_of_cells, loads_of_nodes
from strobe.placement.streaming import (
    StickyPartitioner,
    StickyPlacement,
    StreamingPartitioner,
    StreamingPlacement,
    grow_to,
)
from strobe.strategy import Fact


@dataclass(frozen=True, kw_only=True)
class Metis(Placement):
    """METIS on the union of all snapshots, with edges weighted by the number of snapshots that have them: parts of even
    load (cells and arcs) over all time, not in every window. Every node stays on one rank.

    ``chunks``: METIS also splits each part into this many chunks of even load (0: none). Memory: a few times the union
    graph.
    """

    name: ClassVar[str] = "metis"
    chunks: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.chunks < 0:
            raise OptionError(f"chunks of {self.name} must be at least 1 per rank, or 0 for none, not {self.chunks}")

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("whole sequences", "node chunks") if self.chunks else ("whole sequences",)

    def partition(self, request: PlacementRequest) -> Partition:
        graph, num_ranks, seed = request.graph, request.num_ranks, request.seed
        node_owner = np.zeros(graph.num_nodes, np.int64)
        if num_ranks == 1 and not self.chunks:
            return Partition.by_node(num_ranks, node_owner, len(graph))
        loads = loads_of_nodes(graph)
        present = np.flatnonzero(loads)
        loads, adjacency = loads[present], union_adjacency(graph, present)
        node_owner[present] = part_graph(adjacency, loads, num_ranks, seed)
        if not self.chunks:
            return Partition.by_node(num_ranks, node_owner, len(graph))
        chunk = chunk_nodes(adjacency, loads, node_owner[present], self.chunks, seed)
        chunk_owner = np.zeros(int(chunk.max(initial=0)) + 1, np.int64)
        chunk_owner[chunk] = node_owner[present]
        node_chunk = assign_absent_nodes(chunk, present, graph.num_nodes)
        return Partition.by_chunk(num_ranks, chunk_owner, node_chunk, len(graph))


@dataclass(frozen=True, kw_only=True)
class MetisPerSnapshot(StreamingPlacement):
    """METIS on each snapshot; parts are matched to ranks so that most nodes stay where they were last.

    Every snapshot is balanced with few cut edges, but nodes change ranks between snapshots.
    """

    name: ClassVar[str] = "metis-per-snapshot"

    def start(self, num_ranks: int, *, seed: int = 0) -> StreamingPartitioner:
        """Start a partitioner without snapshots."""
        return _PerSnapshotPartitioner(num_ranks, seed)


class _PerSnapshotPartitioner(StreamingPartitioner):
    def __init__(self, num_ranks: int, seed: int) -> None:
        self._num_ranks, self._seed = num_ranks, seed
        self._last: IntArray = np.empty(0, np.int16)  # rank of each node's last cell, [N]

    def place_next(self, snapshot: Snapshot) -> IntArray:
        if self._num_ranks == 1:
            return np.zeros(snapshot.num_nodes, np.int16)
        part = part_graph(snapshot_adjacency(snapshot), loads_of_cells(snapshot), self._num_ranks, self._seed)
        self._last = grow_to(self._last, snapshot)
        owners = relabel_to_match(part, self._last[snapshot.nodes], self._num_ranks).astype(np.int16)
        self._last[snapshot.nodes] = owners
        return owners

    def state_dict(self) -> dict[str, Any]:
        return {"last": self._last.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._last = np.array(state["last"], np.int16)


@dataclass(frozen=True, kw_only=True)
class MetisSoFar(StickyPlacement):
    """METIS on the union of the snapshots so far, whenever new nodes arrive: ``metis`` without later snapshots.

    Parts are matched to ranks so that most nodes would stay, and only new nodes are assigned. Loads may become uneven,
    since earlier nodes do not move. Cost: memory of a few union graphs, and one METIS run per snapshot with new nodes.
    """

    name: ClassVar[str] = "metis-so-far"

    def start(self, num_ranks: int, *, seed: int = 0) -> StickyPartitioner:
        """Start a partitioner without snapshots."""
        return _UnionPartitioner(num_ranks, seed)


class _UnionPartitioner(StickyPartitioner):
    def __init__(self, num_ranks: int, seed: int) -> None:
        super().__init__(num_ranks)
        self._seed = seed
        self._loads = np.empty(0, np.int64)  # load of every node so far, [N]
        self._pairs = empty_pairs()  # pairs with an edge so far, and in how many snapshots

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"loads": self._loads.copy(), "pairs": self._pairs[0], "counts": self._pairs[1]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._loads = np.array(state["loads"], np.int64)
        self._pairs = np.array(state["pairs"], np.int64), np.array(state["counts"], np.int32)

    def _observe(self, snapshot: Snapshot) -> None:
        if self._num_ranks == 1:
            return
        self._loads = np.concatenate((self._loads, np.zeros(len(self._node_owner) - len(self._loads), np.int64)))
        self._loads[snapshot.nodes] += loads_of_cells(snapshot)
        place = snapshot.nodes.astype(np.int64)
        pairs = extract_pairs(snapshot.row_ptr, snapshot.col, directed=snapshot.directed, place=place)
        self._pairs = add_pairs(self._pairs, pairs)

    def _assign_new(self, snapshot: Snapshot, new: IntArray) -> IntArray:
        present = np.flatnonzero(self._loads)
        adjacency = to_symmetric_csr(self._pairs, len(self._loads))[present][:, present]
        part = part_graph(adjacency, self._loads[present], self._num_ranks, self._seed)
        ranks = relabel_to_match(part, self._node_owner[present], self._num_ranks)
        return ranks[np.searchsorted(present, snapshot.nodes[new])]


@dataclass(frozen=True, kw_only=True)
class Greedy(StickyPlacement):
    """METIS on the first non-empty snapshot; nodes keep their rank, and new nodes go to the rank with fewest nodes.

    A baseline of Zhang and Wu 2025, §5.1, which does not specify new nodes. Later edges are cut at random, and loads
    drift as degrees change.
    """

    name: ClassVar[str] = "greedy"

    def start(self, num_ranks: int, *, seed: int = 0) -> StickyPartitioner:
        """Start a partitioner without snapshots."""
        return _GreedyPartitioner(num_ranks, seed)


class _GreedyPartitioner(StickyPartitioner):
    def __init__(self, num_ranks: int, seed: int) -> None:
        super().__init__(num_ranks)
        self._seed = seed

    def _assign_new(self, snapshot: Snapshot, new: IntArray) -> IntArray:
        owners = self._node_owner[self._node_owner != NO_RANK]
        if not owners.size:
            return part_graph(snapshot_adjacency(snapshot), loads_of_cells(snapshot), self._num_ranks, self._seed)
        return assign_to_smallest(np.bincount(owners, minlength=self._num_ranks), new.size)


def assign_to_smallest(counts: IntArray, num_new: int) -> IntArray:
    """Assign ``num_new`` nodes one by one to the rank with fewest nodes, ties to the first."""
    ranks = [(int(count), rank) for rank, count in enumerate(counts)]
    heapify(ranks)
    owner = np.empty(num_new, np.int16)
    for i in range(num_new):
        count, rank = ranks[0]
        heapreplace(ranks, (count + 1, rank))
        owner[i] = rank
    return owner
