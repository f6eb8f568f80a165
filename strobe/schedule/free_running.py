"""Ranks that step independently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from strobe.comm import Comm
from strobe.schedule.base import Pacer, Schedule, Totals
from strobe.schedule.costs import Costs, Steps
from strobe.schedule.in_order import InOrder
from strobe.strategy import Fact, Need
from strobe.sync.base import GradientSync, average_buffers


@dataclass(frozen=True, kw_only=True)
class FreeRunning(Schedule):
    """Each rank takes optimizer steps on its own batches and waits for other ranks only when weights are averaged.

    Batches are assigned to ranks round-robin, in order of time. If weights are averaged every k steps, all ranks take
    equally many steps. If rank 0's clock decides and batches are sampled, other ranks sample until rank 0 has taken all
    its steps, so an epoch depends on the speed of ranks. Not exact: weights differ between averages.

    Args:
        async_evaluation: rank 0 evaluates a copy of the weights in the background while training continues.
    """

    name: ClassVar[str] = "free-running"
    exact: ClassVar[bool] = False
    lockstep: ClassVar[bool] = False
    async_evaluation: bool = True

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("independent steps",)

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(
                "batches per rank",
                "ranks that share a batch must take its step together",
                "batching hybrid or groups, or schedule in-order",
            ),
            Need(
                "divergent weights",
                "weights of ranks that step independently differ until they are averaged",
                "sync average, or schedule in-order",
            ),
        )

    def pacer(self, comm: Comm, sync: GradientSync) -> Pacer:
        return _OwnPace(comm, sync)

    def steps(self, num_batches: int, num_ranks: int, *, shared: bool, costs: Costs | None = None) -> Steps:
        return InOrder().steps(num_batches, num_ranks, shared=shared, costs=costs)


class _OwnPace(Pacer):
    """Each rank takes its own steps. Rank 0's messages come over the control channel of the sync."""

    def __init__(self, comm: Comm, sync: GradientSync) -> None:
        self._comm, self._sync = comm, sync

    def count(self, num_examples: int) -> float:
        return num_examples

    def loss(self, value: Tensor) -> float:
        return float(value)

    def more(self, step: int, planned: int) -> bool:
        return not self._sync.epoch_over if self._sync.is_follower else step < planned

    def publish(self, choice: int) -> int:
        if self._comm.rank == 0:
            self._sync.publish(choice)
            return choice
        return choice if self._sync.last_published is None else self._sync.last_published

    def after_step(self, model: nn.Module) -> None:
        """Buffers are averaged when the epoch ends."""

    def end_epoch(self, totals: Totals, model: nn.Module) -> Totals:
        average_buffers(model, self._comm)
        return Totals(*self._comm.all_reduce_scalars(list(totals)))
