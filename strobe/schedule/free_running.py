"""Every rank at its own pace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from strobe.schedule.base import Schedule
from strobe.schedule.costs import Costs, Steps
from strobe.schedule.in_order import InOrder
from strobe.strategy import Fact, Need


@dataclass(frozen=True, kw_only=True)
class FreeRunning(Schedule):
    """Ranks take steps of their own batches, one after the other, and wait for nobody but when weights are averaged.

    Batches are dealt to the ranks in order of time. Where weights are averaged after so many steps, each rank takes as
    many. Where rank 0's clock decides and batches are drawn, others draw on until rank 0 has taken all its steps, so an
    epoch depends on how fast ranks were. ``beside``: rank 0 evaluates beside its training, on a copy of the weights,
    and goes on with the next epoch meanwhile.

    Not exact: between averages every rank follows its own batches only, as far as sync lets it.
    """

    name: ClassVar[str] = "free-running"
    exact: ClassVar[bool] = False
    agrees: ClassVar[bool] = False
    beside: bool = True

    @property
    def judges_beside(self) -> bool:
        return self.beside

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("free steps",)

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(
                "batches per rank",
                "ranks that share a batch must take its step together",
                "batching hybrid or groups, or schedule in-order",
            ),
            Need(
                "weights apart",
                "a rank that steps without the others has other weights than they until all agree again",
                "sync average, or schedule in-order",
            ),
        )

    def steps(self, num_batches: int, num_ranks: int, *, shared: bool, costs: Costs | None = None) -> Steps:
        return InOrder().steps(num_batches, num_ranks, shared=shared, costs=costs)
