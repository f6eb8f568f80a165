"""Batches in order of time: from the first snapshot or from a random one, ranks in step or independent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor, nn

from strobe.comm import Comm
from strobe.errors import OptionError
from strobe.schedule.base import Pacer, Schedule, Totals
from strobe.schedule.costs import Costs, Steps
from strobe.strategy import Fact, Need
from strobe.sync.base import GradientSync, average_buffers


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

    def loss(self, value: Tensor | float) -> float:
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
