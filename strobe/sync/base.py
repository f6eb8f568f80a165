"""The sixth axis: how ranks agree on weights."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from strobe.comm import Comm
from strobe.strategy import Strategy


class GradientSync:
    """The session of a run. As it is, it serves one rank, which has nothing to agree on."""

    loss_scale: float = 1.0
    """What a rank's loss is multiplied with before backward, so that agreeing gives the gradient of the whole."""

    def begin_backward(self, last: bool = True) -> None:
        """Gradients are about to appear; ``last`` if no other backward pass of the same step follows."""

    def end_backward(self) -> None:
        """Make the gradients those that the optimizer should use."""

    def after_step(self) -> None:
        """The optimizer has changed the weights."""

    def close(self) -> None:
        """Release the model."""

    def backward(self, loss: Tensor, *, divisor: float, last: bool) -> None:
        """Backward pass of a part of the step's loss, which is a sum over ``divisor`` examples; ``last`` where no other
        part follows."""
        self.begin_backward(last)
        (loss * self.loss_scale / divisor).backward()

    def step(self, optimizer: Optimizer, *, max_grad_norm: float | None, contributed: bool) -> None:
        """Synchronize gradients, clip them and take an optimizer step. ``contributed``: this rank had a backward
        pass."""
        if not contributed:
            self.begin_backward()
        self.end_backward()
        if max_grad_norm:
            nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
        self.after_step()

    def skip_step(self) -> None:
        """A step without examples: ranks that run free count on it."""

    def begin_epoch(self) -> None:
        """Steps of an epoch follow."""

    def end_epoch(self) -> None:
        """All ranks come, after the last step of theirs; afterwards they have the same weights."""

    @property
    def is_follower(self) -> bool:
        """Whether rank 0 says when an epoch of this rank ends, which may take steps until then. Only where ranks run
        free by the clock; never on rank 0."""
        return False

    @property
    def epoch_over(self) -> bool:
        """On a rank that follows: whether rank 0 has ended the epoch, as far as was heard after the last step. Then it
        waits, and this rank should take no more steps."""
        return False

    def publish(self, value: int) -> None:
        """On rank 0: tells the others a number, from 0 on, and goes on. Where ranks have nothing to follow, nothing."""
        del value

    @property
    def last_published(self) -> int | None:
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
    mean = comm.all_reduce(mine, kind="buffers") / comm.num_ranks
    for buffer, part in zip(buffers, mean.split([buffer.numel() for buffer in buffers]), strict=True):
        buffer.copy_(part.view_as(buffer))


@dataclass(frozen=True, kw_only=True)
class Sync(Strategy):
    """A way to agree."""

    @property
    def steps_per_sync(self) -> int:
        """Steps from one sum over all ranks to the next, at least: a clock may leave more between them."""
        return 1

    @abstractmethod
    def start(
        self,
        parameters: Sequence[nn.Parameter],
        comm: Comm,
        optimizer: Optimizer | None = None,
        free_running: bool = False,
    ) -> GradientSync:
        """Begins a run with parameters that are the same on all ranks, and with the optimiser that changes them, whose
        state is then the same, too. ``free``: ranks take steps of their own, each with a loss that is the mean over
        its own examples."""
