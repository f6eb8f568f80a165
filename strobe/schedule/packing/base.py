"""Base of schedules that pack batches into steps."""

# No annotations from __future__: subclasses inherit these fields, and their modules do not import CostSource.

from abc import abstractmethod
from dataclasses import dataclass

from strobe.errors import OptionError
from strobe.schedule.base import CostSource, Schedule
from strobe.schedule.costs import Costs, Solution, Steps
from strobe.schedule.in_order import InOrder
from strobe.strategy import Need


@dataclass(frozen=True, kw_only=True)
class BinPacking(Schedule):
    """Steps in which the batches of each rank, of any windows, take about as long as those of the other ranks.

    Batches run in order until costs are known, and where ranks share them.

    Args:
        max_per_step: most batches per rank and step.
        times: where the seconds of batches come from: measured, predicted or counted.
        profile: epochs in which batches are timed, 2 to 5, where ``times`` is measured.
    """

    max_per_step: int = 2
    times: CostSource = "measured"
    profile: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_per_step < 1:
            raise OptionError(f"max_per_step must be at least 1 batch, not {self.max_per_step}")
        if not 2 <= self.profile <= 5:
            raise OptionError(
                f"profile must be 2 to 5 epochs, not {self.profile}: "
                "the first is slower than the others, and the last decides the order"
            )

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(
                "batches per rank",
                "batches that ranks share cannot be assigned to one rank",
                "batching groups, or schedule in-order",
            ),
        )

    @property
    def cost_source(self) -> CostSource:
        return self.times

    @property
    def profile_epochs(self) -> int:
        return self.profile if self.times == "measured" else 0

    def steps(self, num_batches: int, num_ranks: int, *, shared: bool, costs: Costs | None = None) -> Steps:
        if shared or costs is None:
            return InOrder().steps(num_batches, num_ranks, shared=shared)
        if len(costs) != num_batches:
            raise ValueError(f"{num_batches} batches, but costs of {len(costs)}")
        return self.solve(costs, num_ranks).steps

    @abstractmethod
    def solve(self, costs: Costs, num_ranks: int) -> Solution:
        """Return a short schedule and a lower bound of all schedules."""
