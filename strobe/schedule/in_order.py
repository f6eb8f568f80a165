"""Batches in order of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from strobe.errors import OptionError
from strobe.schedule.base import Schedule
from strobe.schedule.costs import Costs, Steps


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
