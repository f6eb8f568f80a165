"""Every rank takes optimizer steps of its own; from time to time all ranks average their weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from time import perf_counter
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from strobe.comm import Comm
from strobe.errors import OptionError
from strobe.strategy import Fact, Need
from strobe.sync.base import GradientSync, Optimizer, Sync

AVERAGE, END_EPOCH, FIRST_VALUE = 0, 1, 2
"""Control messages of rank 0: average now; average and end the epoch; from here on ``FIRST_VALUE`` + a published
value."""

KIND = "weights"
_DIGEST_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class Average(Sync):
    """Average weights every ``every`` steps or every ``every_s`` seconds, and at the end of an epoch.

    Optimizer state (momentum, Adam's moments and step counts) is averaged, too: afterwards all ranks have the same
    weights and state, and a checkpoint of one rank is valid for all. Values that are equal on all ranks keep their
    bits.

    With ``every`` 1 and SGD, with or without momentum, this equals all-reduce; otherwise weights of ranks diverge
    between averages. Seconds are measured by rank 0 only: it posts a message, and other ranks join after their current
    step.

    Cost: up to twice the bytes of weights and optimizer state per rank and average.
    """

    name: ClassVar[str] = "average"
    exact: ClassVar[bool] = False
    gives: ClassVar[tuple[Fact, ...]] = ("divergent weights",)
    every: int = 1
    every_s: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every < 1:
            raise OptionError(f"weights are averaged every 1 step or more, not {self.every}")
        if self.every_s is not None and self.every_s <= 0:
            raise OptionError(f"every_s must be more than 0 seconds, not {self.every_s:g}")
        if self.every_s is not None and self.every != 1:
            raise OptionError(
                f"weights are averaged after steps or after seconds, not after both: "
                f"leave out every (it is {self.every}) or every_s (it is {self.every_s:g})"
            )

    @property
    def needs(self) -> tuple[Need, ...]:
        why = "ranks in lockstep average after a number of steps: their clocks differ"
        fix = "schedule free-running, or every (steps) in place of every_s"
        return () if self.every_s is None else (Need("independent steps", why, fix),)

    @property
    def steps_per_sync(self) -> int:
        return self.every

    def start(
        self,
        parameters: Sequence[nn.Parameter],
        comm: Comm,
        optimizer: Optimizer | None = None,
        free_running: bool = False,
    ) -> GradientSync:
        averager = StateAverager([each for each in parameters if each.requires_grad], optimizer, comm)
        if self.every_s is None:
            return _AverageBySteps(averager, free_running, self.every)
        return _AverageBySeconds(averager, free_running, self.every_s)


class _AveragingSync(GradientSync):
    """Ranks average when rank 0 posts a message. Messages arrive in order: when a rank averages, it has received all
    values that rank 0 published before."""

    def __init__(self, averager: StateAverager, free_running: bool) -> None:
        self._averager, self._comm, self._free_running = averager, averager.comm, free_running
        # In lockstep, the mean of the ranks' steps is then the step of the summed loss.
        self.loss_scale = 1.0 if free_running else float(self._comm.num_ranks)
        self._channel = self._comm.open_control_channel()
        self._pending_command: int | None = None
        self._value: int | None = None

    def end_backward(self) -> None:
        if self._free_running or self._comm.num_ranks == 1:
            return
        for weight in self._averager.weights:  # momentum must continue, also without a gradient on this rank
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)

    def skip_step(self) -> None:
        if self._free_running:
            self.after_step()

    def end_epoch(self) -> None:
        self._average_all(END_EPOCH)

    def publish(self, value: int) -> None:
        assert self._comm.rank == 0, "only rank 0 publishes values"
        if value < 0:
            raise ValueError(f"a published value must be at least 0, not {value}")
        if value != self._value:
            self._value = value
            self._channel.post(FIRST_VALUE + value)

    @property
    def last_published(self) -> int | None:
        if self._comm.rank == 0:
            return None
        self._poll_command()
        return self._value

    def close(self) -> None:
        self._channel.close()

    def _average_all(self, command: int) -> None:
        """Average on all ranks. Rank 0 posts the command; other ranks block on that message, not on one another."""
        if self._comm.rank == 0:
            self._channel.post(command)
            self._averager.average()
            self._channel.flush()  # all ranks have averaged, so they have received it
            return
        received, self._pending_command = self._wait_command(), None
        assert received == command, f"rank {self._comm.rank} has not taken as many steps as rank 0 since the average"
        self._averager.average()

    def _wait_command(self) -> int:
        """Block until the next command; it stays pending."""
        while self._pending_command is None:
            self._handle_message(self._channel.wait())
        return self._pending_command

    def _poll_command(self) -> int | None:
        """Read messages that have arrived, up to the next command, which stays pending."""
        while self._pending_command is None and (message := self._channel.poll()) is not None:
            self._handle_message(message)
        return self._pending_command

    def _handle_message(self, message: int) -> None:
        if message < FIRST_VALUE:
            self._pending_command = message
        else:
            self._value = message - FIRST_VALUE


class _AverageBySteps(_AveragingSync):
    """All ranks take the same number of steps between averages."""

    def __init__(self, averager: StateAverager, free_running: bool, every: int) -> None:
        super().__init__(averager, free_running)
        self._every, self._steps = every, 0

    def after_step(self) -> None:
        self._steps += 1
        if self._steps == self._every:
            self._average_all(AVERAGE)
            self._steps = 0

    def end_epoch(self) -> None:
        super().end_epoch()
        self._steps = 0


class _AverageBySeconds(_AveragingSync):
    """Rank 0 posts a command when its clock says so; other ranks poll after each of their steps."""

    def __init__(self, averager: StateAverager, free_running: bool, every_s: float) -> None:
        super().__init__(averager, free_running)
        self._every_s, self._since = every_s, perf_counter()

    @property
    def is_follower(self) -> bool:
        return self._comm.rank > 0

    @property
    def epoch_over(self) -> bool:
        return self._pending_command == END_EPOCH

    def begin_epoch(self) -> None:
        self._since = perf_counter()

    def after_step(self) -> None:
        if self._comm.rank:
            while self._poll_command() == AVERAGE:
                self._average_all(AVERAGE)
        elif perf_counter() - self._since >= self._every_s:
            self._average_all(AVERAGE)
            self._since = perf_counter()

    def end_epoch(self) -> None:
        while self._comm.rank and self._wait_command() == AVERAGE:  # rank 0 still takes steps
            self._average_all(AVERAGE)
        super().end_epoch()


@dataclass(frozen=True, order=True)
class OptimizerStateSpec:
    """Layout of a tensor in the optimizer state of a weight."""

    weight: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    device: str


class StateAverager:
    """Averages weights and all floating-point tensors of their optimizer state.

    An optimizer creates the state of a weight at its first gradient, so ranks may have different tensors. A rank sends
    the layout of a new tensor once; on ranks without it, it is 0. Afterwards all ranks have the same tensors.
    """

    def __init__(self, weights: Sequence[nn.Parameter], optimizer: Optimizer | None, comm: Comm) -> None:
        self.weights, self.comm, self._optimizer = weights, comm, optimizer
        self._shared_specs: list[OptimizerStateSpec] = []

    def average(self) -> None:
        """Average on all ranks; collective."""
        if self.comm.num_ranks == 1 or not self.weights:
            return
        tensors = [weight.data for weight in self.weights] + [self._state_tensor(each) for each in self._shared_specs]
        unknown = self._new_specs()
        if not average_tensors(self.comm, tensors, kind=KIND, flag=bool(unknown)):
            return
        new = sorted(set().union(*self.comm.all_gather_object(unknown, kind=KIND)))
        average_tensors(self.comm, [self._state_tensor(each) for each in new], kind=KIND)
        self._shared_specs += new

    def _new_specs(self) -> list[OptimizerStateSpec]:
        """Layouts of this rank's state tensors that other ranks do not know."""
        if self._optimizer is None:
            return []
        known = {(each.weight, each.name) for each in self._shared_specs}
        return [
            OptimizerStateSpec(
                number, name, tuple(value.shape), str(value.dtype).removeprefix("torch."), value.device.type
            )
            for number, weight in enumerate(self.weights)
            for name, value in self._optimizer.state.get(weight, {}).items()
            if (number, name) not in known and isinstance(value, Tensor) and value.is_floating_point()
        ]

    def _state_tensor(self, spec: OptimizerStateSpec) -> Tensor:
        """The optimizer's own tensor; created if it has none yet."""
        weight = self.weights[spec.weight]
        assert self._optimizer is not None, "either all ranks have an optimizer or none"
        state = self._optimizer.state[weight]
        if not isinstance(state.get(spec.name), Tensor):
            device = weight.device if weight.device.type == spec.device else torch.device(spec.device)
            state[spec.name] = torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype), device=device)
        tensor: Tensor = state[spec.name]
        return tensor


def average_tensors(comm: Comm, tensors: Sequence[Tensor], *, kind: str, flag: bool = False) -> bool:
    """Replace tensors by their means over all ranks, in place, bit-identical on each; one all-reduce per dtype.

    Tensors that are equal on all ranks keep their bits: the sum of three equal numbers, divided by 3, is off in the
    last digit in one of six cases. Equality shows in a digest, sent along as zeros and ones: every bit must add up to 0
    or to the number of ranks.

    Returns:
        Whether any rank has set ``flag``.
    """
    any_flag = False
    for dtype in dict.fromkeys(each.dtype for each in tensors):
        same_dtype = [each for each in tensors if each.dtype == dtype]
        device = same_dtype[0].device
        flat = torch.cat([each.detach().to(device).flatten() for each in same_dtype])
        payload = torch.cat([flat, _digest(flat), flat.new_tensor([float(flag)])])
        total, bits, flags = comm.all_reduce(payload, kind=kind).split([len(flat), 8 * _DIGEST_BYTES, 1])
        any_flag |= bool(flags.item())
        if not ((bits == 0) | (bits == comm.num_ranks)).all():
            means = (total / comm.num_ranks).split([each.numel() for each in same_dtype])
            for each, mean in zip(same_dtype, means, strict=True):
                each.copy_(mean.view(each.shape))
    return any_flag


def _digest(flat: Tensor) -> Tensor:
    """A hash of the bits of a tensor as 64 zeros and ones."""
    digest = blake2b(flat.view(torch.uint8).cpu().numpy().tobytes(), digest_size=_DIGEST_BYTES).digest()
    return torch.from_numpy(np.unpackbits(np.frombuffer(digest, np.uint8))).to(flat)
