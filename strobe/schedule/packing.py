"""Batches of several windows in a step, so that all ranks end it together."""

# No annotations from __future__: the choices below have these fields too, and their modules do not know Known.

from abc import abstractmethod
from dataclasses import dataclass

from strobe.errors import OptionError
from strobe.schedule.base import Known, Schedule
from strobe.schedule.costs import Costs, Solved, Steps
from strobe.schedule.in_order import InOrder
from strobe.strategy import Need


@dataclass(frozen=True, kw_only=True)
class Packing(Schedule):
    """Steps in which every rank has at most ``limit`` batches, of any windows, that take about as long as those of the
    other ranks. An epoch takes the seconds of the slowest rank of every step, and those to agree.

    While nothing is known of batches, and where ranks share them, they run in order. Where ``times`` are measured,
    the first ``profile`` epochs are watched.
    """

    limit: int = 2
    times: Known = "measured"
    profile: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.limit < 1:
            raise OptionError(f"a rank has at least 1 batch in a step: limit must be 1 or more, not {self.limit}")
        if not 2 <= self.profile <= 5:
            raise OptionError(
                f"profile must be 2 to 5 epochs, not {self.profile}: "
                "the first is slower than the others, and the order is settled after the last"
            )

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(
                "batches per rank",
                "only batches that a rank runs alone can be given to this rank or that",
                "batching groups, or schedule in-order",
            ),
        )

    @property
    def wants(self) -> Known:
        return self.times

    @property
    def watches(self) -> int:
        return self.profile if self.times == "measured" else 0

    def steps(self, num_batches: int, num_ranks: int, *, shared: bool, costs: Costs | None = None) -> Steps:
        if shared or costs is None:
            return InOrder().steps(num_batches, num_ranks, shared=shared)
        if len(costs) != num_batches:
            raise ValueError(f"{num_batches} batches, but the seconds of {len(costs)}")
        return self.solve(costs, num_ranks).steps

    @abstractmethod
    def solve(self, costs: Costs, num_ranks: int) -> Solved:
        """A short schedule, and how short one can be at all."""
