"""Time cut in two at random, the later part first."""

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
    """In every epoch the training snapshots are cut at a point by lot: first those after it, then those before it.

    The later part goes on from the states that the epoch before had at that point; the first epoch, which has none, is
    not cut. (3.2 of Huang et al. 2026.) Not exact: those states are as old as an epoch.
    """

    name: ClassVar[str] = "random-split"
    exact: ClassVar[bool] = False

    @property
    def needs(self) -> tuple[Need, ...]:
        why = "windows are cut at another point in every epoch"
        return (Need("sliding windows", why, "batching trapezoid, or schedule in-order"),)

    def stretches(self, times: range, epoch: int, seed: int) -> list[range]:
        if epoch == 0 or len(times) < 2:
            return [times]
        cut = int(np.random.default_rng([seed, 21, epoch]).integers(1, len(times)))
        return [times[cut:], times[:cut]]

    def steps(self, num_batches: int, num_ranks: int, *, shared: bool, costs: Costs | None = None) -> Steps:
        return InOrder().steps(num_batches, num_ranks, shared=shared, costs=costs)
