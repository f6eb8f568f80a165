"""Batches in order of time, from the first snapshot or from a random one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from strobe.errors import OptionError
from strobe.schedule.base import Schedule
from strobe.schedule.costs import Costs, Steps
from strobe.strategy import Need


@dataclass(frozen=True, kw_only=True)
class InOrder(Schedule):
    """Batches in order of time. A shared batch takes a step; other batches are assigned to ranks round-robin.

    Args:
        per_step: batches per step where they are not shared; one per rank by default.
    """

    name: ClassVar[str] = "in-order"
    per_step: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.per_step is not None and self.per_step < 1:
            raise OptionError(f"per_step must be at least 1 batch, not {self.per_step}")

    def steps(self, num_batches: int, num_ranks: int, *, shared: bool, costs: Costs | None = None) -> Steps:
        del costs
        if shared:
            return [[[batch] for _ in range(num_ranks)] for batch in range(num_batches)]
        size = self.per_step or num_ranks
        firsts = range(0, num_batches, size)
        return [
            [list(range(first + rank, min(first + size, num_batches), num_ranks)) for rank in range(num_ranks)]
            for first in firsts
        ]


@dataclass(frozen=True, kw_only=True)
class RandomSplit(Schedule):
    """Every epoch splits the training snapshots at a random point and trains the later part first.

    The later part starts from the states that the previous epoch had at that point; the first epoch is not split.
    (Section 3.2 of Huang et al. 2026.) Not exact: these states are one epoch old.
    """

    name: ClassVar[str] = "random-split"
    exact: ClassVar[bool] = False

    @property
    def needs(self) -> tuple[Need, ...]:
        why = "the split point changes in every epoch"
        return (Need("sliding windows", why, "batching trapezoid, or schedule in-order"),)

    def time_order(self, times: range, epoch: int, seed: int) -> list[range]:
        if epoch == 0 or len(times) < 2:
            return [times]
        cut = int(np.random.default_rng([seed, 21, epoch]).integers(1, len(times)))
        return [times[cut:], times[:cut]]

    def steps(self, num_batches: int, num_ranks: int, *, shared: bool, costs: Costs | None = None) -> Steps:
        return InOrder().steps(num_batches, num_ranks, shared=shared, costs=costs)
