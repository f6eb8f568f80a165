"""Costs of batches and of schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from strobe.ops.sparse.csr import FloatArray

Steps = list[list[list[int]]]
"""Batch indices by step and rank. Gradients of all batches of a step are summed."""


@dataclass(frozen=True, eq=False)
class Costs:
    """Measured or predicted costs.

    Args:
        seconds: seconds of every batch, [B].
        sync_s: seconds of the synchronization at the end of a step.
    """

    seconds: FloatArray
    sync_s: float = 0.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.seconds).all() and (self.seconds >= 0).all() and 0 <= self.sync_s < np.inf):
            raise ValueError("seconds of batches must be finite and at least 0")

    def __len__(self) -> int:
        return len(self.seconds)

    def loads(self, step: Sequence[Sequence[int]]) -> FloatArray:
        """Return the seconds of every rank in a step, [W]."""
        return np.array([self.seconds[list(batches)].sum() for batches in step])

    def epoch_seconds(self, steps: Steps) -> float:
        """Return the seconds of an epoch: every step takes as long as its slowest rank, plus ``sync_s``."""
        return float(sum(self.loads(step).max(initial=0.0) + self.sync_s for step in steps))


@dataclass(frozen=True)
class Solution:
    """A schedule, its cost (seconds of an epoch), a lower bound of all schedules, and the method that found it."""

    steps: Steps = field(repr=False)
    cost: float
    bound: float
    method: str

    @property
    def gap(self) -> float:
        """Relative distance to the bound; 0 if the schedule is proven optimal."""
        return self.cost / self.bound - 1 if self.bound > 0 else 0.0
