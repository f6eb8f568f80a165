"""Sync axis: how ranks combine gradients or weights."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from strobe.comm import Comm
from strobe.strategy import Strategy


class Optimizer(Protocol):
    """What a run uses of an optimizer. Those of ``torch.optim`` have it, and those of ``strobe.engine.optimizer``."""

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Weights (``params``) and options; a run has one group."""

    @property
    def state(self) -> defaultdict[Tensor, Any]:
        """Tensors by weight and name; none before the first gradient of a weight."""

    def step(self) -> None:
        """Update all weights that have a gradient."""

    def zero_grad(self) -> None:
        """Forget all gradients."""

    def state_dict(self) -> dict[str, Any]:
        """Return state by the number of each weight, and the options."""

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Continue with the state and options of ``state_dict``."""


class GradientSync:
    """Synchronization of one rank during a run. This base class is that of a single rank and sends nothing."""

    loss_scale: float = 1.0
    """Factor of a rank's loss before backward, such that synchronization gives the gradient of the total loss."""

    def begin_backward(self, last: bool = True) -> None:
        """Called before each backward pass; ``last``: it is the last one of the step."""

    def end_backward(self) -> None:
        """Called after the last backward pass of a step: make gradients final for the optimizer."""

    def after_step(self) -> None:
        """Called after each optimizer step."""

    def close(self) -> None:
        """Remove hooks from the model and close channels."""

    def backward(self, loss: Tensor, *, divisor: float, last: bool) -> None:
        """Run the backward pass of a part of the step's loss.

        Args:
            loss: summed over examples.
            divisor: number of examples of the step.
            last: no other part follows.
        """
        self.begin_backward(last)
        scaled = loss if self.loss_scale == 1 else loss * self.loss_scale
        (scaled / divisor).backward()

    def step(self, optimizer: Optimizer, *, max_grad_norm: float | None, contributed: bool) -> None:
        """Synchronize gradients, clip them and take an optimizer step.

        Args:
            optimizer: the optimizer.
            max_grad_norm: maximum norm of the gradient; None: no clipping.
            contributed: whether this rank had a backward pass.
        """
        if not contributed:
            self.begin_backward()
        self.end_backward()
        if max_grad_norm:
            nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
        self.after_step()

    def skip_step(self) -> None:
        """Called instead of ``step`` if a step has no examples: free-running ranks count it."""

    def begin_epoch(self) -> None:
        """Called before the steps of an epoch."""

    def end_epoch(self) -> None:
        """Called by each rank after its last step of an epoch; afterwards all ranks have the same weights."""

    @property
    def is_follower(self) -> bool:
        """Whether this rank takes steps until rank 0 ends the epoch: on ranks above 0 that average by time."""
        return False

    @property
    def epoch_over(self) -> bool:
        """On a follower: whether the message that ends the epoch had arrived after the last step. Rank 0 then waits."""
        return False

    def publish(self, value: int) -> None:
        """On rank 0: send a value, at least 0, to all other ranks without blocking. Ignored without followers."""
        del value

    @property
    def last_published(self) -> int | None:
        """On other ranks: the latest published value that has arrived; at least the last one before an average."""
        return None


def average_buffers(module: nn.Module, comm: Comm) -> None:
    """Replace floating-point buffers (running moments of batch norms) by their means over all ranks.

    For ranks that train different batches. The moments differ from those of one rank that trains all batches in a row;
    weights do not depend on them.
    """
    if comm.num_ranks == 1:
        return
    buffers = [buffer for buffer in module.buffers() if buffer.is_floating_point()]
    if not buffers:
        return
    flat = torch.cat([buffer.detach().flatten() for buffer in buffers])
    mean = comm.all_reduce(flat, kind="buffers") / comm.num_ranks
    for buffer, part in zip(buffers, mean.split([buffer.numel() for buffer in buffers]), strict=True):
        buffer.copy_(part.view_as(buffer))


@dataclass(frozen=True, kw_only=True)
class Sync(Strategy):
    """How ranks synchronize gradients or weights."""

    @property
    def steps_per_sync(self) -> int:
        """Minimum number of steps between two synchronizations."""
        return 1

    @abstractmethod
    def start(
        self,
        parameters: Sequence[nn.Parameter],
        comm: Comm,
        optimizer: Optimizer | None = None,
        free_running: bool = False,
    ) -> GradientSync:
        """Start the synchronization of a run.

        Args:
            parameters: of the model, equal on all ranks.
            comm: the ranks.
            optimizer: of the parameters, with equal state on all ranks.
            free_running: ranks take steps of their own, each with the mean loss of its own examples.
        """
