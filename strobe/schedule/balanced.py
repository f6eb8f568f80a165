"""Optimal packing for few batches, greedy packing for many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from strobe.errors import OptionError
from strobe.schedule.costs import Costs, Solution
from strobe.schedule.greedy import Greedy
from strobe.schedule.optimal import Optimal
from strobe.schedule.packing.base import BinPacking


@dataclass(frozen=True, kw_only=True)
class Balanced(BinPacking):
    """``optimal`` for up to ``max_batches`` batches, ``greedy`` above: with many batches both are equally good.

    Args:
        max_batches: the largest number of batches for ``optimal``.
        gap: passed to ``optimal``.
    """

    name: ClassVar[str] = "balanced"
    max_batches: int = 100
    gap: float = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_batches < 0:
            raise OptionError(f"max_batches must be 0 or more, not {self.max_batches}")
        Optimal(gap=self.gap)  # checks gap

    def solve(self, costs: Costs, num_ranks: int) -> Solution:
        if len(costs) <= self.max_batches:
            return Optimal(max_per_step=self.max_per_step, gap=self.gap).solve(costs, num_ranks)
        return Greedy(max_per_step=self.max_per_step).solve(costs, num_ranks)
