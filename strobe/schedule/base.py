"""Schedule axis: the order of batches, and the rank that computes each."""

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
"""Where costs of batches come from: ``measured`` in the first epochs; ``predicted`` from cells and arcs, with a model
fitted to a few batches timed before training; or ``counted`` cells and arcs."""


class Totals(NamedTuple):
    """Sums over the steps of an epoch: loss and number of examples."""

    loss: float = 0.0
    num_examples: float = 0.0

    @property
    def mean(self) -> float:
        return self.loss / max(self.num_examples, 1)


class Pacer(ABC):
    """How ranks proceed: in lockstep, or each at its own pace. One per run and rank."""

    @abstractmethod
    def count(self, num_examples: int) -> float:
        """The number of examples by which a step's loss is divided: of all ranks, or of this one."""

    @abstractmethod
    def loss(self, value: Tensor | float) -> float:
        """The summed loss of a step, of all ranks or of this one. Synchronizes with the device."""

    @abstractmethod
    def more(self, step: int, planned: int) -> bool:
        """Whether this rank takes another step after ``step`` of ``planned`` steps in the epoch."""

    @abstractmethod
    def publish(self, choice: int) -> int:
        """Broadcast rank 0's choice, at least 0. Returns the latest one that has arrived on this rank."""

    @abstractmethod
    def after_step(self, model: nn.Module) -> None:
        """In lockstep: average the buffers of a model whose ranks train different cells."""

    @abstractmethod
    def end_epoch(self, totals: Totals, model: nn.Module) -> Totals:
        """Totals over all ranks; afterwards all ranks have the same buffers."""


class Lockstep(Pacer):
    """All ranks take every step together."""

    def __init__(self, comm: Comm) -> None:
        self._comm = comm

    def count(self, num_examples: int) -> float:
        return self._comm.all_reduce_scalars([num_examples])[0]

    def loss(self, value: Tensor | float) -> float:
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
    """Order of batches, and their assignment to ranks."""

    lockstep: ClassVar[bool] = True
    """Whether ranks take every step together; otherwise each takes steps of its own batches."""

    @property
    def async_evaluation(self) -> bool:
        """Whether evaluation runs in the background while training continues."""
        return False

    @property
    def cost_source(self) -> CostSource | None:
        """The costs of batches that ``steps`` needs; None if their number is enough."""
        return None

    @property
    def profile_epochs(self) -> int:
        """Number of first epochs in which batches are timed, in the order without costs."""
        return 0

    def pacer(self, comm: Comm, sync: GradientSync) -> Pacer:
        """The pacer of a run."""
        del sync
        return Lockstep(comm)

    def time_order(self, times: range, epoch: int, seed: int) -> list[range]:
        """For sliding windows: the order in which an epoch visits the training snapshots, as consecutive ranges."""
        del epoch, seed
        return [times]

    @abstractmethod
    def steps(self, num_batches: int, num_ranks: int, *, shared: bool, costs: Costs | None = None) -> Steps:
        """Assign every batch to exactly one step.

        Args:
            num_batches: number of batches.
            num_ranks: number of ranks.
            shared: whether all ranks compute every batch together.
            costs: costs of batches; None if they are not known yet.
        """
