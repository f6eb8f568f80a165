"""The better schedule where it is worth its seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from strobe.errors import OptionError
from strobe.schedule.costs import Costs, Solved
from strobe.schedule.greedy import Greedy
from strobe.schedule.optimal import Optimal
from strobe.schedule.packing import Packing


@dataclass(frozen=True, kw_only=True)
class Balanced(Packing):
    """Optimal, to within ``gap``, for up to so many batches, greedy above: with many batches both are as good."""

    name: ClassVar[str] = "balanced"
    up_to: int = 100
    gap: float = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.up_to < 0:
            raise OptionError(f"up_to is a number of batches, 0 or more, not {self.up_to}")
        Optimal(gap=self.gap)  # refuses what is none

    def solve(self, costs: Costs, num_ranks: int) -> Solved:
        few = len(costs) <= self.up_to
        choice = Optimal(limit=self.limit, gap=self.gap) if few else Greedy(limit=self.limit)
        return choice.solve(costs, num_ranks)
