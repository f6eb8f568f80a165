"""The fifth axis: in which order, on which rank, batches run."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from strobe.schedule.costs import Costs, Steps
from strobe.strategy import Strategy

Known = Literal["measured", "predicted", "counted"]
"""Where the seconds of batches come from: they were timed in the first epochs of training; some of them were timed
before it, and the others follow from their cells and arcs; or cells and arcs themselves are taken for seconds."""


@dataclass(frozen=True, kw_only=True)
class Schedule(Strategy):
    """A way to order batches."""

    agrees: ClassVar[bool] = True
    """Whether ranks take every step together; else each takes those of its own batches, and they meet now and then."""

    @property
    def judges_beside(self) -> bool:
        """Whether weights are scored beside training, which goes on meanwhile."""
        return False

    @property
    def wants(self) -> Known | None:
        """What it must know about batches to order them; None where their number is enough."""
        return None

    @property
    def watches(self) -> int:
        """Epochs in which batches are timed, in the order they have while nothing is known."""
        return 0

    def stretches(self, times: range, epoch: int, seed: int) -> list[range]:
        """The training snapshots as an epoch goes through them, where windows slide: stretches one after the other."""
        del epoch, seed
        return [times]

    @abstractmethod
    def steps(self, num_batches: int, num_ranks: int, *, shared: bool, costs: Costs | None = None) -> Steps:
        """Every batch in exactly one step. ``shared``: all ranks work on every batch together. ``costs`` is what is
        known, if it is known yet."""
