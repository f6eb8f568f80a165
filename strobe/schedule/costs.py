"""What batches cost, and what a schedule of them costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from strobe.ops.csr import FloatArray

Steps = list[list[list[int]]]
"""For every step, for every rank, the numbers of the batches it runs. The gradients of a step are added up."""


@dataclass(frozen=True, eq=False)
class Costs:
    """Seconds of every batch, and those that it takes all ranks to agree at the end of a step."""

    seconds: FloatArray  # [B]
    agree_s: float = 0.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.seconds).all() and (self.seconds >= 0).all() and 0 <= self.agree_s < np.inf):
            raise ValueError("batches take seconds: finite numbers, none below 0")

    def __len__(self) -> int:
        return len(self.seconds)

    def loads(self, step: Sequence[Sequence[int]]) -> FloatArray:
        """Seconds of every rank in a step, [W]."""
        return np.array([self.seconds[list(batches)].sum() for batches in step])

    def of(self, steps: Steps) -> float:
        """Seconds of an epoch: in every step all wait for the slowest rank, and then agree."""
        return float(sum(self.loads(step).max(initial=0.0) + self.agree_s for step in steps))


@dataclass(frozen=True)
class Solved:
    """A schedule, the seconds of its epoch, and those that no schedule can stay below.

    ``by`` says how it was found.
    """

    steps: Steps = field(repr=False)
    cost: float
    bound: float
    by: str

    @property
    def gap(self) -> float:
        """How much longer than the bound it takes, as a part of the bound; nothing better is sure at 0."""
        return self.cost / self.bound - 1 if self.bound > 0 else 0.0
