"""Every rank steps for itself; now and then all take the mean of their weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from strobe.comm import Comm
from strobe.errors import OptionError
from strobe.sync.base import Sync, Syncing


@dataclass(frozen=True, kw_only=True)
class Average(Sync):
    """Weights are averaged after every ``every`` steps; an optimiser's moments stay with their rank.

    With ``every`` 1 and plain gradient descent this is all-reduce, exactly; otherwise ranks drift apart between
    averages. Cost: twice the bytes of the parameters per rank and average.
    """

    name: ClassVar[str] = "average"
    exact: ClassVar[bool] = False
    every: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every < 1:
            raise OptionError(f"weights are averaged every 1 step or more, not {self.every}")

    @property
    def steps_between(self) -> int:
        return self.every

    def start(self, parameters: Sequence[nn.Parameter], comm: Comm) -> Syncing:
        return _Averaging([p for p in parameters if p.requires_grad], comm, self.every)


class _Averaging(Syncing):
    def __init__(self, parameters: list[nn.Parameter], comm: Comm, every: int) -> None:
        self._parameters, self._comm, self._every = parameters, comm, every
        self.share = float(comm.num_ranks)  # the mean of the ranks' steps is then the step of the whole
        self._steps = 0

    def backward_begins(self, last: bool = True) -> None:
        pass

    def backward_ends(self) -> None:
        pass

    def stepped(self) -> None:
        self._steps += 1
        if self._steps % self._every or self._comm.num_ranks == 1:
            return
        sizes = [parameter.numel() for parameter in self._parameters]
        mine = torch.cat([parameter.detach().flatten() for parameter in self._parameters])
        mean = self._comm.sum(mine, kind="weights") / self._comm.num_ranks
        for parameter, part in zip(self._parameters, mean.split(sizes), strict=True):
            parameter.data.copy_(part.view_as(parameter))

    def close(self) -> None:
        pass
