"""Every rank steps for itself; now and then all take the mean of their weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import ClassVar

import torch
from torch import nn
from torch.optim import Optimizer

from strobe.comm import Comm
from strobe.errors import OptionError
from strobe.strategy import Fact, Need
from strobe.sync.base import GradientSync, Sync
from strobe.sync.state_averager import StateAverager

AVERAGE, END_EPOCH, FIRST_VALUE = 0, 1, 2
"""What rank 0 calls: all average now; all average, and the epoch is over; from here on a number, so much larger."""


@dataclass(frozen=True, kw_only=True)
class Average(Sync):
    """Weights are averaged after every ``every`` steps, or every ``every_s`` seconds; and when an epoch ends.

    What an optimiser keeps for its weights (momentum, Adam's moments and counts of steps) is averaged with them: after
    an average ranks have the same of everything, and a checkpoint of one is one of all. Ranks that had the same before
    keep it, bit for bit.

    With ``every`` 1 and gradient descent, with momentum or without, this is all-reduce, exactly; otherwise ranks drift
    apart between averages. Seconds are those of rank 0's clock: it calls, and the others come after the step they are
    in. No rank goes by a clock of its own: one that is ahead of the others' would have it wait alone.

    Cost: up to twice the bytes of the weights, and of what the optimiser keeps for them, per rank and average.
    """

    name: ClassVar[str] = "average"
    exact: ClassVar[bool] = False
    every: int = 1
    every_s: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every < 1:
            raise OptionError(f"weights are averaged every 1 step or more, not {self.every}")
        if self.every_s is not None and self.every_s <= 0:
            raise OptionError(f"weights are averaged every so many seconds, more than 0, not {self.every_s:g}")
        if self.every_s is not None and self.every != 1:
            raise OptionError(
                f"weights are averaged after steps or after seconds, not after both: "
                f"leave out every (it is {self.every}) or every_s (it is {self.every_s:g})"
            )

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("divergent weights",)

    @property
    def needs(self) -> tuple[Need, ...]:
        if self.every_s is None:
            return ()
        return (
            Need(
                "independent steps",
                "ranks that take every step together meet by the number of steps, and a clock would part them",
                "schedule free-running, or every so many steps in place of every_s",
            ),
        )

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
        weights = [parameter for parameter in parameters if parameter.requires_grad]
        means = StateAverager(weights, optimizer, comm)
        if self.every_s is None:
            return _AverageBySteps(weights, means, comm, free_running, self.every)
        return _AverageBySeconds(weights, means, comm, free_running, self.every_s)


class _AveragingSync(GradientSync):
    """Ranks meet at words of rank 0: all that it called before has then been heard, and nobody waits alone."""

    def __init__(self, weights: list[nn.Parameter], averager: StateAverager, comm: Comm, free_running: bool) -> None:
        self._weights, self._averager, self._comm, self._free_running = weights, averager, comm, free_running
        self.loss_scale = (
            1.0 if free_running else float(comm.num_ranks)
        )  # the mean of the ranks' steps is the step of the whole
        self._channel = comm.open_control_channel()
        self._pending_command: int | None = None
        self._value: int | None = None

    def end_backward(self) -> None:
        if self._free_running or self._comm.num_ranks == 1:
            return
        for weight in self._weights:  # the rank's part of a step of all: momentum goes on where it has no gradient, too
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)

    def skip_step(self) -> None:
        if self._free_running:
            self.after_step()

    def end_epoch(self) -> None:
        self._average_all(END_EPOCH)

    def publish(self, value: int) -> None:
        assert self._comm.rank == 0, "only rank 0 passes a number on"
        if value < 0:
            raise ValueError(f"numbers from 0 on can be passed on, not {value}")
        if value != self._value:
            self._value = value
            self._channel.post(FIRST_VALUE + value)

    @property
    def last_published(self) -> int | None:
        if self._comm.rank:
            self._poll_command()
            return self._value
        return None

    def close(self) -> None:
        self._channel.close()

    def _average_all(self, command: int) -> None:
        """All ranks take the mean. Rank 0 has the others come; they wait for its word first, not for each other."""
        if self._comm.rank == 0:
            self._channel.post(command)
            self._averager.average()
            self._channel.flush()  # they came, so they have heard it
            return
        called = self._take_command()
        assert called == command, f"rank {self._comm.rank} has not taken as many steps as rank 0 since they last met"
        self._averager.average()

    def _take_command(self) -> int:
        """The word to come that is called next; waits for it, and lets go of it."""
        word, self._pending_command = self._wait_command(), None
        return word

    def _wait_command(self) -> int:
        """The word to come that is called next; waits for it."""
        while self._pending_command is None:
            self._handle_message(self._channel.wait())
        return self._pending_command

    def _poll_command(self) -> int | None:
        """Takes note of numbers that are here, up to a word to come, which is held until it is followed."""
        while self._pending_command is None and (word := self._channel.poll()) is not None:
            self._handle_message(word)
        return self._pending_command

    def _handle_message(self, message: int) -> None:
        if message < FIRST_VALUE:
            self._pending_command = message
        else:
            self._value = message - FIRST_VALUE


class _AverageBySteps(_AveragingSync):
    """All ranks take as many steps, and come by their number."""

    def __init__(
        self, weights: list[nn.Parameter], averager: StateAverager, comm: Comm, free_running: bool, every: int
    ) -> None:
        super().__init__(weights, averager, comm, free_running)
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
    """Rank 0's clock has all come; the others look after each of their steps whether they were called."""

    def __init__(
        self, weights: list[nn.Parameter], averager: StateAverager, comm: Comm, free_running: bool, every_s: float
    ) -> None:
        super().__init__(weights, averager, comm, free_running)
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
