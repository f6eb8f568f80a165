"""The sixth axis: how ranks agree on weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import Optimizer

from strobe.comm import Comm
from strobe.strategy import Strategy


class Syncing(ABC):
    """What changes while ranks agree: one for each run."""

    share: float = 1.0
    """What a rank's loss is multiplied with before backward, so that agreeing gives the gradient of the whole."""

    @abstractmethod
    def backward_begins(self, last: bool = True) -> None:
        """Gradients are about to appear; ``last`` where no other backward of the same step follows."""

    @abstractmethod
    def backward_ends(self) -> None:
        """Gradients are there; afterwards they are what the optimiser should use."""

    @abstractmethod
    def stepped(self) -> None:
        """The optimiser has changed the weights."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of the model."""

    def epoch_begins(self) -> None:  # noqa: B027
        """Steps of an epoch follow."""

    def epoch_ends(self) -> None:  # noqa: B027
        """All ranks come, after the last step of theirs; afterwards they have the same weights."""

    @property
    def follows(self) -> bool:
        """Whether rank 0 says when an epoch of this rank ends, which may take steps until then. Only where ranks run
        free by the clock; never on rank 0."""
        return False

    @property
    def over(self) -> bool:
        """On a rank that follows: whether rank 0 has ended the epoch, as far as was heard after the last step. Then it
        waits, and this rank should take no more steps."""
        return False

    def pass_on(self, number: int) -> None:
        """On rank 0: tells the others a number, from 0 on, and goes on. Where ranks have nothing to follow, nothing."""
        del number

    @property
    def told(self) -> int | None:
        """On the others: the latest number that rank 0 has passed on, of those that are here. All are that it passed
        on before the last time weights were averaged."""
        return None


def average_buffers(module: nn.Module, comm: Comm) -> None:
    """Numbers that a model keeps beside its weights (moments of batch norms) become the mean of all ranks'.

    Needed where ranks see different batches. One rank would have seen them one after the other, which gives other
    moments; weights do not depend on them.
    """
    buffers = [buffer for buffer in module.buffers() if buffer.is_floating_point()]
    if comm.num_ranks == 1 or not buffers:
        return
    mine = torch.cat([buffer.detach().flatten() for buffer in buffers])
    mean = comm.sum(mine, kind="buffers") / comm.num_ranks
    for buffer, part in zip(buffers, mean.split([buffer.numel() for buffer in buffers]), strict=True):
        buffer.copy_(part.view_as(buffer))


@dataclass(frozen=True, kw_only=True)
class Sync(Strategy):
    """A way to agree."""

    @property
    def steps_between(self) -> int:
        """Steps from one sum over all ranks to the next, at least: a clock may leave more between them."""
        return 1

    @abstractmethod
    def start(
        self, parameters: Sequence[nn.Parameter], comm: Comm, optimiser: Optimizer | None = None, free: bool = False
    ) -> Syncing:
        """Begins a run with parameters that are the same on all ranks, and with the optimiser that changes them, whose
        state is then the same, too. ``free``: ranks take steps of their own, each with a loss that is the mean over
        its own examples."""
