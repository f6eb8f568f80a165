"""The fifth axis: in which order, on which rank, batches run."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from strobe.strategy import Strategy

Steps = list[list[list[int]]]
"""For every step, for every rank, the numbers of the batches it runs. The gradients of a step are added up."""


@dataclass(frozen=True, kw_only=True)
class Schedule(Strategy):
    """A way to order batches."""

    @abstractmethod
    def steps(self, num_batches: int, num_ranks: int, *, shared: bool) -> Steps:
        """Every batch in exactly one step. ``shared``: all ranks work on every batch together."""
