"""The sixth axis: how ranks agree on weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

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
        """Steps from one sum over all ranks to the next."""
        return 1

    @abstractmethod
    def start(self, parameters: Sequence[nn.Parameter], comm: Comm) -> Syncing:
        """Begins a run with parameters that are the same on all ranks."""
