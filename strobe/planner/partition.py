"""Partition of a graph and its estimated costs, counted without starting ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from os import PathLike
from time import perf_counter
from typing import Any

import numpy as np
import torch

from strobe.batching import BatchSpec
from strobe.comm import NO_RANK
from strobe.comm.ledger_stats import imbalance
from strobe.engine.inputs.graph_source import GraphLike
from strobe.engine.inputs.model_choice import ModelLike
from strobe.engine.inputs.resolve import TrainRequest, resolve
from strobe.engine.job import Job
from strobe.engine.model_costs import TRACED
from strobe.engine.partitioned_graph import PartitionedGraph, khop_masks
from strobe.engine.progress import Progress
from strobe.engine.trace import ViewCall, trace_view_calls
from strobe.errors import OptionError
from strobe.exchange import Exchange
from strobe.exchange.dry_run import FakeComm
from strobe.ops.sparse.csr import IntArray, distinct
from strobe.placement import Partition, Placement
from strobe.placement.model_costs import CellSetSizes, count_load
from strobe.plan import Plan
from strobe.planner.comm.volume import PassVolume, comm_volume_of_all_ranks
from strobe.planner.services import with_planner
from strobe.tasks import Task

STRUCTURE_KINDS = ("halo",)
"""Message kinds of the structure stage; all other kinds belong to the time stage."""


@dataclass(frozen=True, kw_only=True)
class ChunkSizes:
    """Chunks of a rank, and their cells."""

    num_chunks: int
    median_cells: float
    largest_cells: int


@dataclass(frozen=True, kw_only=True)
class RankCost:
    """A rank's part of the training snapshots, and the bytes of a training epoch by kind.

    ``load`` is counted in arcs, or in predicted seconds if the placement needs them.
    """

    cells: int
    arcs: int
    load: float
    sent: dict[str, int]
    received: dict[str, int]
    chunks: ChunkSizes | None = None

    @property
    def sent_bytes(self) -> int:
        return sum(self.sent.values())

    @property
    def structure_bytes(self) -> int:
        return sum(self.sent.get(kind, 0) for kind in STRUCTURE_KINDS)

    @property
    def time_bytes(self) -> int:
        return self.sent_bytes - self.structure_bytes

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class PartitionedJob:
    """A job with a ``FakeComm``, partitioned."""

    def __init__(self, job: Job, progress: Progress) -> None:
        self.job, self.progress = job, progress
        self.graph, self.train, self.num_ranks = job.problem.graph, job.problem.split.train, job.comm.num_ranks
        self.placement_name = job.plan.placement.name
        progress.stage(f"placing cells by {self.placement_name}", 0, None)
        began = perf_counter()
        partition = job.partitioned_graph.partition
        self.placement_s = perf_counter() - began
        single = Partition.by_node(1, np.zeros(self.graph.num_nodes, np.int16), len(self.graph))
        self.partition = single if partition is None else partition

    def rank_costs(self) -> tuple[RankCost, ...]:
        sizes = self._sizes()
        loads = (self.job.model_costs.load_model if self.job.plan.placement.needs_measured_loads else count_load)(sizes)
        sent, received = self._count_bytes()
        return tuple(
            RankCost(
                cells=int(sizes.cells[rank]),
                arcs=int(sizes.arcs[rank]),
                load=float(loads[rank]),
                sent={kind: int(each[rank]) for kind, each in sent.items() if each[rank]},
                received={kind: int(each[rank]) for kind, each in received.items() if each[rank]},
                chunks=self._chunk_sizes(rank),
            )
            for rank in range(self.num_ranks)
        )

    def comm_volumes(self) -> Iterator[tuple[BatchSpec, PassVolume]]:
        """Yield the batches of an epoch with the work and bytes of all ranks in a pass over each."""
        exchange = self.job.plan.exchange
        sharing = PartitionedGraph(self.graph, self.job.plan, FakeComm(0, self.num_ranks), self.partition)
        for number, batch in enumerate(self.job.batches):
            masks = None  # of the cells of each snapshot that the batch computes; None: all
            if batch.seed_nodes is not None:
                masks = khop_masks(self.graph, batch.times, batch.seed_nodes, batch.hops)
            data = sharing.window_data(batch.times, masks=masks, resets_state=not batch.continues_state)
            local, nodes = data.local_partition, self.graph.num_nodes
            yield (
                batch,
                comm_volume_of_all_ranks(
                    self.graph,
                    self.partition,
                    exchange,
                    batch.times,
                    repeat_calls(self.view_calls, len(batch.times)),
                    home=np.full(nodes, NO_RANK, np.int16) if local is None else local.home,
                    dtype=self.job.settings.dtype,
                    continues_state=batch.continues_state and number > 0,
                    cell_masks=masks,
                ),
            )

    @cached_property
    def view_calls(self) -> list[ViewCall]:
        """View calls of the model on two snapshots."""
        assert self.graph.features is not None  # every task adds features
        with torch.random.fork_rng():
            return trace_view_calls(self.job.choice.make(self.graph.features.shape[0]), self.graph[:TRACED])

    @cached_property
    def cells_at(self) -> IntArray:
        """Number of cells per snapshot and rank, [T, W]."""
        owners = (self.partition.owners(self.graph, t) for t in range(len(self.graph)))
        return np.array([np.bincount(owner, minlength=self.num_ranks) for owner in owners]).reshape(-1, self.num_ranks)

    @cached_property
    def chunk_cells(self) -> tuple[IntArray, IntArray]:
        """Number of cells and owner of every training chunk."""
        if self.partition.cell_chunk is None:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        first, last = (int(self.graph.cell_ptr[t]) for t in (self.train.start, self.train.stop))
        owner = np.concatenate([np.empty(0, np.int16), *(self.partition.owners(self.graph, t) for t in self.train)])
        _, at, count = np.unique(self.partition.cell_chunk[first:last], return_index=True, return_counts=True)
        return count, owner[at]

    def _sizes(self) -> CellSetSizes:
        """Count the cells, arcs and sequences of every rank in training; each leg's rank has the sequence."""
        arcs = np.zeros(self.num_ranks, np.int64)
        now = np.full(self.graph.num_nodes, NO_RANK, np.int16)
        begun: list[IntArray] = [np.empty(0, np.int64)]
        for t in self.train:
            snapshot, owner = self.graph[t], self.partition.owners(self.graph, t)
            arcs += np.bincount(owner, snapshot.in_degree, self.num_ranks).astype(np.int64)
            begins = now[snapshot.nodes] != owner
            begun.append(owner[begins].astype(np.int64) * self.graph.num_nodes + snapshot.nodes[begins])
            now[snapshot.nodes] = owner
        has = distinct(np.concatenate(begun)) // max(self.graph.num_nodes, 1)
        sequences = np.bincount(has, minlength=self.num_ranks)
        return CellSetSizes(self.cells_at[self.train.start : self.train.stop].sum(axis=0), arcs, sequences)

    def _count_bytes(self) -> tuple[dict[str, IntArray], dict[str, IntArray]]:
        """Count the bytes that every rank sends and receives in a training epoch, by kind, [W] each."""
        sent: dict[str, IntArray] = {}
        received: dict[str, IntArray] = {}
        zeros = np.zeros(self.num_ranks, np.int64)
        for number, (_, volume) in enumerate(self.comm_volumes()):
            self.progress.stage(f"counting bytes of {self.placement_name}", number, len(self.job.batches))
            for kind in volume.traffic.sent:
                sent[kind] = sent.get(kind, zeros) + volume.traffic.sent[kind]
                received[kind] = received.get(kind, zeros) + volume.traffic.received[kind]
        return sent, received

    def _chunk_sizes(self, rank: int) -> ChunkSizes | None:
        if self.partition.cell_chunk is None:
            return None
        cells, owner = self.chunk_cells
        cells = cells[owner == rank]
        if not cells.size:
            return ChunkSizes(num_chunks=0, median_cells=0.0, largest_cells=0)
        return ChunkSizes(num_chunks=cells.size, median_cells=float(np.median(cells)), largest_cells=int(cells.max()))


def repeat_calls(calls: Sequence[ViewCall], num_snapshots: int) -> list[ViewCall]:
    """Extend view calls on two snapshots to ``num_snapshots`` by repeating those on the second snapshot."""
    first = [call for call in calls if call.snapshot is None or call.snapshot < num_snapshots]
    second = [call for call in calls if call.snapshot == TRACED - 1]
    return [*first, *(replace(call, snapshot=t) for t in range(TRACED, num_snapshots) for call in second)]


def log2_histogram(sizes: IntArray) -> tuple[int, ...]:
    """Count sizes of 1, 2 to 3, 4 to 7, …."""
    return tuple(np.bincount(np.log2(sizes).astype(np.int64)).tolist()) if sizes.size else ()


PARTS = ("training", "validation", "test")


@dataclass(frozen=True, kw_only=True)
class PartitionEstimate:
    """Estimated costs of a partition.

    Bytes count rows and states; those of a stale exchange are of its first pass. They exclude embeddings of sampled
    pairs (edge-level tasks) and gradients of weights.

    Attributes:
        times: names of all snapshots.
        parts: first snapshot and end of training, validation and test.
        placement_s: seconds that the placement took.
        rank_costs: of every rank, for an epoch of training.
        cells_at: cells of every rank in every snapshot.
        chunk_counts: number of training chunks with 1 cell, 2 to 3, 4 to 7, …; empty without chunks.
        default_bytes, default_imbalance: of the default placement and exchange.
    """

    graph: str
    model: str
    placement: Placement
    exchange: Exchange
    times: tuple[str, ...]
    parts: dict[str, tuple[int, int]]
    placement_s: float
    rank_costs: tuple[RankCost, ...]
    cells_at: tuple[tuple[int, ...], ...]
    chunk_counts: tuple[int, ...]
    is_edge_level: bool
    default_bytes: int
    default_imbalance: float | None

    @property
    def is_default(self) -> bool:
        """Whether placement and exchange are the default ones."""
        return (self.placement, self.exchange) == (Plan().placement, Plan().exchange)

    @property
    def num_training(self) -> int:
        first, last = self.parts["training"]
        return last - first

    @property
    def num_ranks(self) -> int:
        return len(self.rank_costs)

    @property
    def sent_bytes(self) -> int:
        return sum(cost.sent_bytes for cost in self.rank_costs)

    @property
    def imbalance(self) -> float | None:
        """Load of the fullest rank relative to the emptiest; None if that has none."""
        return imbalance([cost.load for cost in self.rank_costs])

    @cached_property
    def relative_loads(self) -> list[float]:
        """Load of every rank relative to the mean."""
        mean = sum(cost.load for cost in self.rank_costs) / self.num_ranks
        return [cost.load / mean if mean else 0.0 for cost in self.rank_costs]

    def to_json(self) -> dict[str, Any]:
        return {
            "graph": self.graph,
            "model": self.model,
            "placement": self.placement.to_json(),
            "exchange": self.exchange.to_json(),
            "ranks": [cost.to_json() for cost in self.rank_costs],
            "imbalance": self.imbalance,
            "sent_bytes": self.sent_bytes,
            "default": {"imbalance": self.default_imbalance, "sent_bytes": self.default_bytes},
            "placement_s": self.placement_s,
            "times": list(self.times),
            "parts": {name: list(part) for name, part in self.parts.items()},
            "cells_at": [list(row) for row in self.cells_at],
            "chunk_counts": list(self.chunk_counts),
            "is_edge_level": self.is_edge_level,
        }


def estimate_partition(
    graph: GraphLike,
    model: ModelLike = "tgcn",
    task: str | Task | None = None,
    *,
    placement: Placement,
    ranks: int,
    exchange: Exchange | None = None,
    model_options: Mapping[str, Any] | None = None,
    data_dir: str | PathLike[str] | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> PartitionEstimate:
    """Partition a graph as training would, and count the cells, arcs and bytes of every rank.

    Args:
        graph, model, task, model_options, data_dir: as for ``train``.
        placement: the placement strategy.
        ranks: the number of ranks.
        exchange: default: halo and relay.
        settings: fields of ``Settings`` that matter before training: window, seed, precision, device.

    Raises:
        OptionError: an option does not apply.
        PlanError: the placement or exchange does not fit.
    """
    progress = Progress() if progress is None else progress
    if ranks < 1:
        raise OptionError(f"there is at least 1 rank, not {ranks}")
    if settings.get("recompute") is not None:
        raise OptionError("bytes are estimated for training without recomputation: leave recompute out")
    plan = Plan(placement=placement) if exchange is None else Plan(placement=placement, exchange=exchange)
    request = with_planner(TrainRequest(graph, model, task, model_options, None, settings, data_dir, plan))
    job = resolve(request, None, progress, FakeComm(0, ranks))
    partitioned = PartitionedJob(job, progress)
    costs = partitioned.rank_costs()
    default_plan = replace(Plan(), batching=job.plan.batching)
    same = default_plan == job.plan
    default = costs if same else PartitionedJob(replace(job, plan=default_plan), progress).rank_costs()
    split = job.problem.split
    return PartitionEstimate(
        graph=job.source.name,
        model=job.choice.name,
        placement=job.plan.placement,
        exchange=job.plan.exchange,
        times=tuple(str(time) for time in job.problem.graph.times),
        parts={
            name: (part.start, part.stop)
            for name, part in zip(PARTS, (split.train, split.validation, split.test), strict=True)
        },
        placement_s=partitioned.placement_s,
        rank_costs=costs,
        cells_at=tuple(tuple(row) for row in partitioned.cells_at.tolist()),
        chunk_counts=log2_histogram(partitioned.chunk_cells[0]),
        is_edge_level=job.problem.is_edge_level,
        default_bytes=sum(cost.sent_bytes for cost in default),
        default_imbalance=imbalance([cost.load for cost in default]),
    )
