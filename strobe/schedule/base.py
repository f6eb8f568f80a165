"""The fifth axis: in which order, on which rank, batches run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from torch import Tensor, nn

from strobe.comm import Comm
from strobe.schedule.costs import Costs, Steps
from strobe.strategy import Strategy
from strobe.sync.base import GradientSync, average_buffers

CostSource = Literal["measured", "predicted", "counted"]
"""Where the seconds of batches come from: they were timed in the first epochs of training; some of them were timed
before it, and the others follow from their cells and arcs; or cells and arcs themselves are taken for seconds."""


class Totals(NamedTuple):
    """Sums over the steps of an epoch: the loss of all examples, and how many they are."""

    loss: float = 0.0
    num_examples: float = 0.0

    @property
    def mean(self) -> float:
        return self.loss / max(self.num_examples, 1)


class Pacer(ABC):
    """How far ranks move together: in lockstep, or each at its own pace. One per run and rank."""

    @abstractmethod
    def count(self, num_examples: int) -> float:
        """The examples that a step's loss is divided by: of all ranks, or of this one."""

    @abstractmethod
    def loss(self, value: Tensor) -> float:
        """The summed loss of a step, of all ranks or of this one. Waits for the device."""

    @abstractmethod
    def more(self, step: int, planned: int) -> bool:
        """Whether this rank takes another step after ``step`` of ``planned`` steps in the epoch."""

    @abstractmethod
    def publish(self, choice: int) -> int:
        """Rank 0's choice, from 0 on, as far as this rank knows it now."""

    @abstractmethod
    def after_step(self, model: nn.Module) -> None:
        """Average buffers of a model whose ranks see different cells, where all ranks have taken the step."""

    @abstractmethod
    def end_epoch(self, totals: Totals, model: nn.Module) -> Totals:
        """Sums of all ranks; afterwards they have the same buffers."""


class Lockstep(Pacer):
    """All ranks take every step together."""

    def __init__(self, comm: Comm) -> None:
        self._comm = comm

    def count(self, num_examples: int) -> float:
        return self._comm.all_reduce_scalars([num_examples])[0]

    def loss(self, value: Tensor) -> float:
        return self._comm.all_reduce_scalars([float(value)])[0]

    def more(self, step: int, planned: int) -> bool:
        return step < planned

    def publish(self, choice: int) -> int:
        published: int = self._comm.broadcast_object(choice, kind="batch_size")
        return published

    def after_step(self, model: nn.Module) -> None:
        average_buffers(model, self._comm)

    def end_epoch(self, totals: Totals, model: nn.Module) -> Totals:
        return totals


@dataclass(frozen=True, kw_only=True)
class Schedule(Strategy):
    """A way to order batches."""

    lockstep: ClassVar[bool] = True
    """Whether ranks take every step together; else each takes those of its own batches, and they meet now and then."""

    @property
    def async_evaluation(self) -> bool:
        """Whether weights are scored beside training, which goes on meanwhile."""
        return False

    @property
    def cost_source(self) -> CostSource | None:
        """What it must know about batches to order them; None where their number is enough."""
        return None

    @property
    def profile_epochs(self) -> int:
        """Epochs in which batches are timed, in the order they have while nothing is known."""
        return 0

    def pacer(self, comm: Comm, sync: GradientSync) -> Pacer:
        """How far ranks move together in a run."""
        del sync
        return Lockstep(comm)

    def time_order(self, times: range, epoch: int, seed: int) -> list[range]:
        """The training snapshots as an epoch goes through them, where windows slide: stretches one after the other."""
        del epoch, seed
        return [times]

    @abstractmethod
    def steps(self, num_batches: int, num_ranks: int, *, shared: bool, costs: Costs | None = None) -> Steps:
        """Every batch in exactly one step. ``shared``: all ranks work on every batch together. ``costs`` is what is
        known, if it is known yet."""
