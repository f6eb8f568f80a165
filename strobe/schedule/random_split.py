"""Snapshots split at a random point, the later part first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from strobe.schedule.base import Schedule
from strobe.schedule.costs import Costs, Steps
from strobe.schedule.in_order import InOrder
from strobe.strategy import Need


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
