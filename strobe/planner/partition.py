"""Partition of a graph and its estimated costs, without training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from typing import Any

from strobe.comm.ledger_stats import imbalance
from strobe.engine.inputs.graph_source import GraphLike
from strobe.engine.inputs.model_choice import ModelLike
from strobe.engine.inputs.resolve import TrainRequest, resolve
from strobe.engine.progress import Progress
from strobe.errors import OptionError
from strobe.exchange import Exchange
from strobe.placement import Placement
from strobe.plan import Plan
from strobe.planner.comm.volume import FakeComm
from strobe.planner.rank_costs import PartitionedJob, RankCost, log2_histogram
from strobe.planner.services import PlannerServices
from strobe.tasks import Task

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
    request = TrainRequest(
        graph, model, task, model_options, None, settings, data_dir, plan, services=PlannerServices()
    )
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
