"""Placements by number, which no edge decides: whole snapshots, whole sequences, or both; and replication."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from strobe.ops.sparse.csr import IntArray
from strobe.placement.base import Partition, Placement, PlacementRequest, split_at_windows, split_evenly
from strobe.placement.loads import split_sequences_evenly
from strobe.strategy import Fact, Need


@dataclass(frozen=True, kw_only=True)
class BySnapshot(Placement):
    """Equal numbers of snapshots per rank in every window: ``round_robin``, or in consecutive blocks.

    No arc is cut. With round robin a node changes ranks at every snapshot; with blocks once per rank and window, but
    loads are even only if all snapshots cost the same.
    """

    name: ClassVar[str] = "by-snapshot"
    gives: ClassVar[tuple[Fact, ...]] = ("whole snapshots",)
    round_robin: bool = True

    def partition(self, request: PlacementRequest) -> Partition:
        owner = np.arange(len(request.graph)) % request.num_ranks if self.round_robin else assign_blocks(request)
        return Partition.by_snapshot(request.num_ranks, owner, request.graph.num_nodes)


@dataclass(frozen=True, kw_only=True)
class BySequence(Placement):
    """Equal numbers of sequences per rank, nodes in order of id. No state moves; edges are cut by the order of ids."""

    name: ClassVar[str] = "by-sequence"
    gives: ClassVar[tuple[Fact, ...]] = ("whole sequences",)

    def partition(self, request: PlacementRequest) -> Partition:
        node_owner = split_sequences_evenly(request.graph, request.num_ranks)
        return Partition.by_node(request.num_ranks, node_owner, len(request.graph))


@dataclass(frozen=True, kw_only=True)
class SnapshotThenSequence(Placement):
    """Equal numbers of snapshots per rank for the structure stage, in consecutive blocks of every window; equal numbers
    of sequences per rank for the time stage, nodes in order of id.

    No arc is cut; with W ranks about (W - 1) / W of all cells are not on the rank of their sequence.
    """

    name: ClassVar[str] = "snapshot-then-sequence"
    gives: ClassVar[tuple[Fact, ...]] = ("whole snapshots",)

    def partition(self, request: PlacementRequest) -> Partition:
        partition = Partition.by_snapshot(request.num_ranks, assign_blocks(request), request.graph.num_nodes)
        sequence_owner = split_sequences_evenly(request.graph, request.num_ranks)
        return replace(partition, sequence_owner=sequence_owner.astype(np.int16))


@dataclass(frozen=True, kw_only=True)
class Replicated(Placement):
    """Every rank has every cell. Memory: the full snapshots of a rank's batches."""

    name: ClassVar[str] = "replicated"
    gives: ClassVar[tuple[Fact, ...]] = ("replicas", "whole snapshots", "whole sequences", "local inputs")

    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            "batches per rank",
            "ranks with the same cells and the same batch would do the same work",
            "batching groups, or a placement that partitions cells",
        ),
    )

    def partition(self, request: PlacementRequest) -> Partition:
        graph = request.graph
        partition = Partition.by_node(request.num_ranks, np.zeros(graph.num_nodes, np.int16), len(graph))
        return replace(partition, replicated=True)


def assign_blocks(request: PlacementRequest) -> IntArray:
    """Rank of every snapshot, [T]: in every window consecutive blocks with equal numbers of snapshots."""
    spans = split_at_windows(request.windows, len(request.graph))
    return np.concatenate([np.empty(0, np.int64), *(split_evenly(len(span), request.num_ranks) for span in spans)])
