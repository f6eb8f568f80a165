"""Blocks of consecutive snapshots with balanced loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.ops.sparse.csr import IntArray
from strobe.placement.algorithms.blocks import (
    MAX_IMBALANCE,
    FractionalBlocks,
    PartitionCandidate,
    balance_blocks,
    choose_candidate,
    evaluate_candidate,
    imbalance,
    imbalance_limit,
    split_blocks,
)
from strobe.placement.base import Partition, Placement, PlacementRequest, snapshot_loads, split_at_windows
from strobe.strategy import Fact


@dataclass(frozen=True, kw_only=True)
class TimeBlocks(Placement):
    """One block of consecutive snapshots per rank in every window, minimizing the largest block.

    No arc is cut, and a node changes ranks once per block. If whole snapshots are uneven (slowest ranks above 1.05
    times the mean load), blocks may end within a snapshot: loads are even, neighbor rows are sent only in shared
    snapshots, and ranks still follow each other in time along every sequence.

    With more than two ranks per snapshot or fewer than two snapshots per rank, blocks of whole snapshots with nodes
    split into parts, rank = block * parts + part, are a candidate, too; of the even candidates the one that sends the
    fewest rows wins. ``parts`` fixes their number; 1 keeps snapshots whole.

    Snapshots and nodes are split by METIS, or by hash without pymetis.
    """

    name: ClassVar[str] = "time-blocks"
    parts: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.parts is not None and self.parts < 1:
            raise OptionError(f"parts of {self.name} must be at least 1, not {self.parts}")

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("whole snapshots",) if self.parts == 1 else ()

    def partition(self, request: PlacementRequest) -> Partition:
        graph, windows, num_ranks = request.graph, request.windows, request.num_ranks
        self._check(num_ranks)
        pieces = [
            _Span(graph[span.start : span.stop], num_ranks, request.seed, _is_computed(span, windows))
            for span in split_at_windows(windows, len(graph))
        ]
        if num_ranks == 1 or self.parts == 1 or (self.parts is None and _is_even(pieces)):
            snapshot_owner = np.concatenate([np.empty(0, np.int64), *(piece.blocks(num_ranks) for piece in pieces)])
            return Partition.by_snapshot(num_ranks, snapshot_owner, graph.num_nodes)
        cell_owner: list[IntArray] = [np.empty(0, np.int16)]
        last = np.full(graph.num_nodes, -1, np.int16)
        for piece in pieces:
            owners = piece.choose(last) if self.parts is None else piece.assign_parts(self.parts, last)
            for snapshot, owner in zip(piece.graph, owners, strict=True):
                last[snapshot.nodes] = owner
            cell_owner += owners
        return Partition.by_cell(num_ranks, np.concatenate(cell_owner), graph)

    def _check(self, num_ranks: int) -> None:
        divisors = _divisors(num_ranks)
        if self.parts is not None and num_ranks > 1 and self.parts not in divisors:
            raise OptionError(
                f"{num_ranks} ranks cannot be divided into blocks of {self.parts} parts: "
                f"choose one of {', '.join(map(str, divisors))}, or none"
            )


@dataclass(frozen=True, eq=False)
class _Span:
    """A span of snapshots and its candidate partitions, as owners of the cells of every snapshot. ``last``: rank of
    each node's last cell before the span, [N], or -1."""

    graph: DynamicGraph
    num_ranks: int
    seed: int
    is_computed: bool

    @cached_property
    def loads(self) -> IntArray:
        return snapshot_loads(self.graph)

    def blocks(self, num_blocks: int) -> IntArray:
        """Block of every snapshot, [T], without splitting snapshots."""
        return balance_blocks(self.loads, num_blocks)

    def loads_of_blocks(self, num_blocks: int) -> IntArray:
        return np.bincount(self.blocks(num_blocks), self.loads, num_blocks).astype(np.int64)

    def assign_whole(self) -> list[IntArray]:
        """One block of whole snapshots per rank."""
        blocks = self.blocks(self.num_ranks).astype(np.int16)
        return [np.full(snapshot.num_nodes, block) for snapshot, block in zip(self.graph, blocks, strict=True)]

    def assign_parts(self, parts: int, last: IntArray) -> list[IntArray]:
        """Fewer blocks, with the nodes of each split into parts."""
        return split_blocks(self.graph, self.blocks(self.num_ranks // parts), parts, last, self.seed)

    def choose(self, last: IntArray) -> list[IntArray]:
        """Whole snapshots if even; else blocks that share snapshots, unless parts of nodes send fewer rows."""
        whole = self.assign_whole()
        if not self.is_computed or _is_even([self]):
            return whole
        shared = FractionalBlocks.of(self.graph, self.num_ranks)
        candidates = [self._evaluate(owners, last) for owners in (whole, shared.owners(self.seed))]
        if not shared.is_pairwise or candidates[-1].imbalance > MAX_IMBALANCE:
            for parts in _divisors(self.num_ranks)[1:]:
                # parts only add to the imbalance of blocks: skip METIS if those are too uneven already
                if imbalance(self.loads_of_blocks(self.num_ranks // parts)[None]) <= imbalance_limit(candidates):
                    candidates.append(self._evaluate(self.assign_parts(parts, last), last))
        return choose_candidate(candidates).owners

    def _evaluate(self, owners: list[IntArray], last: IntArray) -> PartitionCandidate:
        return evaluate_candidate(self.graph, owners, last, self.num_ranks)


def _is_computed(span: range, windows: Sequence[range]) -> bool:
    """Whether a window contains the span; e.g. a last snapshot with targets only is not computed."""
    return not any(len(window) for window in windows) or any(span.start in window for window in windows)


def _is_even(pieces: Sequence[_Span]) -> bool:
    """Whether blocks of whole snapshots are even over all spans."""
    loads = [piece.loads_of_blocks(piece.num_ranks) for piece in pieces if piece.is_computed]
    return not loads or imbalance(np.array(loads)) <= MAX_IMBALANCE


def _divisors(num_ranks: int) -> list[int]:
    return [parts for parts in range(1, num_ranks + 1) if num_ranks % parts == 0]
