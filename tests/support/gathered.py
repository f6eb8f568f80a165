"""What several ranks do in a step, done by one: the same batches, and so the same weights."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from strobe.schedule import Costs, Schedule, Steps
from strobe.schedule.base import CostSource


@dataclass(frozen=True, kw_only=True)
class Gathered(Schedule):
    """The steps of another schedule for several ranks, all of it on one."""

    name: ClassVar[str] = "gathered"
    inner: Schedule
    num_ranks: int

    @property
    def cost_source(self) -> CostSource | None:
        return self.inner.cost_source

    def steps(self, num_batches: int, num_ranks: int, *, shared: bool, costs: Costs | None = None) -> Steps:
        assert num_ranks == 1
        found = self.inner.steps(num_batches, 1 if shared else self.num_ranks, shared=shared, costs=costs)
        return [[sorted(chain(*step))] for step in found]
