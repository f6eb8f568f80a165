"""Who would own which cells, and what that would cost: decided as training decides it, without training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from typing import Any

from strobe.engine.choice import ModelLike
from strobe.engine.job import Given, choose
from strobe.engine.ledger_table import load
from strobe.engine.partition_shares import PlacedJob, RankShare, powers
from strobe.engine.predicted import Imagined
from strobe.engine.progress import Progress
from strobe.engine.source import GraphLike
from strobe.errors import OptionError
from strobe.exchange import Exchange
from strobe.placement import Placement
from strobe.plan import Plan
from strobe.tasks import Task

PARTS = ("training", "validation", "test")


@dataclass(frozen=True, kw_only=True)
class Partition:
    """Cells of a graph among ranks that do not exist.

    ``shares`` are of training; ``cells_at`` are the cells of every rank in every snapshot, those of validation and
    test included; ``parts`` says which snapshots those are, from one up to another. ``seconds`` is what placing took.
    ``chunk_counts`` says how many chunks of training have 1 cell, 2 or 3, 4 to 7, and so on; it is empty where there
    are none. ``default_bytes`` and ``default_load`` are those of the placement and exchange that training takes by
    itself. Bytes are those of rows and states, of a stale exchange those of its first pass. Not among them are
    embeddings of pairs (``asks_pairs``), which nobody knows before, and gradients of weights, which no placement
    changes.
    """

    graph: str
    model: str
    placement: Placement
    exchange: Exchange
    times: tuple[str, ...]
    parts: dict[str, tuple[int, int]]
    seconds: float
    shares: tuple[RankShare, ...]
    cells_at: tuple[tuple[int, ...], ...]
    chunk_counts: tuple[int, ...]
    asks_pairs: bool
    default_bytes: int
    default_load: float | None

    @property
    def is_default(self) -> bool:
        """Whether training would do the same by itself."""
        return (self.placement, self.exchange) == (Plan().placement, Plan().exchange)

    @property
    def num_training(self) -> int:
        first, last = self.parts["training"]
        return last - first

    @property
    def num_ranks(self) -> int:
        return len(self.shares)

    @property
    def sent_bytes(self) -> int:
        return sum(share.sent_bytes for share in self.shares)

    @property
    def load(self) -> float | None:
        """What the fullest rank has for 1 of the emptiest; None where that has nothing."""
        return load([share.load for share in self.shares])

    @cached_property
    def relative_loads(self) -> list[float]:
        """The load of every rank, for a mean of 1."""
        mean = sum(share.load for share in self.shares) / self.num_ranks
        return [share.load / mean if mean else 0.0 for share in self.shares]

    def to_json(self) -> dict[str, Any]:
        return {
            "graph": self.graph,
            "model": self.model,
            "placement": self.placement.to_json(),
            "exchange": self.exchange.to_json(),
            "ranks": [share.to_json() for share in self.shares],
            "load": self.load,
            "sent_bytes": self.sent_bytes,
            "default": {"load": self.default_load, "sent_bytes": self.default_bytes},
            "seconds": self.seconds,
            "times": list(self.times),
            "parts": {name: list(part) for name, part in self.parts.items()},
            "cells_at": [list(row) for row in self.cells_at],
            "chunk_counts": list(self.chunk_counts),
            "asks_pairs": self.asks_pairs,
        }


def partition(
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
) -> Partition:
    """Places cells on so many ranks as training would, and counts what each would have, send and receive.

    Args:
        placement: who owns which cell.
        ranks: how many there would be.
        exchange: how rows and states would travel; by itself halo and relay.
        settings: fields of ``Settings`` that matter before training: window, seed, precision, device.
    """
    progress = Progress() if progress is None else progress
    if ranks < 1:
        raise OptionError(f"there is at least 1 rank, not {ranks}")
    if settings.get("recompute") is not None:
        raise OptionError("bytes are predicted for training that computes nothing twice: leave recompute out")
    plan = Plan(placement=placement) if exchange is None else Plan(placement=placement, exchange=exchange)
    given = Given(graph, model, task, model_options, None, settings, data_dir, plan)
    job = choose(given, None, progress, Imagined(0, ranks))
    ours = PlacedJob(job, progress)
    shares = ours.shares()
    usual = replace(Plan(), batching=job.plan.batching)
    default = shares if usual == job.plan else PlacedJob(replace(job, plan=usual), progress).shares()
    split = job.problem.split
    return Partition(
        graph=job.source.name,
        model=job.choice.name,
        placement=job.plan.placement,
        exchange=job.plan.exchange,
        times=tuple(str(time) for time in job.problem.graph.times),
        parts={
            name: (part.start, part.stop)
            for name, part in zip(PARTS, (split.train, split.validation, split.test), strict=True)
        },
        seconds=ours.seconds,
        shares=shares,
        cells_at=tuple(tuple(row) for row in ours.cells_at.tolist()),
        chunk_counts=powers(ours.chunk_cells[0]),
        asks_pairs=job.problem.asks_pairs,
        default_bytes=sum(share.sent_bytes for share in default),
        default_load=load([share.load for share in default]),
    )
