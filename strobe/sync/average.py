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
from strobe.sync.base import Sync, Syncing
from strobe.sync.mean import Means

AVERAGE, END, FIRST_NUMBER = 0, 1, 2
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
        return ("weights apart",)

    @property
    def needs(self) -> tuple[Need, ...]:
        if self.every_s is None:
            return ()
        return (
            Need(
                "free steps",
                "ranks that take every step together meet by the number of steps, and a clock would part them",
                "schedule free-running, or every so many steps in place of every_s",
            ),
        )

    @property
    def steps_between(self) -> int:
        return self.every

    def start(
        self, parameters: Sequence[nn.Parameter], comm: Comm, optimiser: Optimizer | None = None, free: bool = False
    ) -> Syncing:
        weights = [parameter for parameter in parameters if parameter.requires_grad]
        means = Means(weights, optimiser, comm)
        if self.every_s is None:
            return _Counted(weights, means, comm, free, self.every)
        return _Timed(weights, means, comm, free, self.every_s)


class _Averaging(Syncing):
    """Ranks meet at words of rank 0: all that it called before has then been heard, and nobody waits alone."""

    def __init__(self, weights: list[nn.Parameter], means: Means, comm: Comm, free: bool) -> None:
        self._weights, self._means, self._comm, self._free = weights, means, comm, free
        self.share = 1.0 if free else float(comm.num_ranks)  # the mean of the ranks' steps is the step of the whole
        self._line = comm.line()
        self._held: int | None = None
        self._number: int | None = None

    def backward_begins(self, last: bool = True) -> None:
        pass

    def backward_ends(self) -> None:
        if self._free or self._comm.num_ranks == 1:
            return
        for weight in self._weights:  # the rank's part of a step of all: momentum goes on where it has no gradient, too
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)

    def epoch_ends(self) -> None:
        self._meet(END)

    def pass_on(self, number: int) -> None:
        assert self._comm.rank == 0, "only rank 0 passes a number on"
        if number < 0:
            raise ValueError(f"numbers from 0 on can be passed on, not {number}")
        if number != self._number:
            self._number = number
            self._line.call(FIRST_NUMBER + number)

    @property
    def told(self) -> int | None:
        if self._comm.rank:
            self._listen()
            return self._number
        return None

    def close(self) -> None:
        self._line.close()

    def _meet(self, word: int) -> None:
        """All ranks take the mean. Rank 0 has the others come; they wait for its word first, not for each other."""
        if self._comm.rank == 0:
            self._line.call(word)
            self._means.take()
            self._line.settle()  # they came, so they have heard it
            return
        called = self._called()
        assert called == word, f"rank {self._comm.rank} has not taken as many steps as rank 0 since they last met"
        self._means.take()

    def _called(self) -> int:
        """The word to come that is called next; waits for it, and lets go of it."""
        word, self._held = self._next(), None
        return word

    def _next(self) -> int:
        """The word to come that is called next; waits for it."""
        while self._held is None:
            self._take(self._line.next())
        return self._held

    def _listen(self) -> int | None:
        """Takes note of numbers that are here, up to a word to come, which is held until it is followed."""
        while self._held is None and (word := self._line.heard()) is not None:
            self._take(word)
        return self._held

    def _take(self, word: int) -> None:
        if word < FIRST_NUMBER:
            self._held = word
        else:
            self._number = word - FIRST_NUMBER


class _Counted(_Averaging):
    """All ranks take as many steps, and come by their number."""

    def __init__(self, weights: list[nn.Parameter], means: Means, comm: Comm, free: bool, every: int) -> None:
        super().__init__(weights, means, comm, free)
        self._every, self._steps = every, 0

    def stepped(self) -> None:
        self._steps += 1
        if self._steps == self._every:
            self._meet(AVERAGE)
            self._steps = 0

    def epoch_ends(self) -> None:
        super().epoch_ends()
        self._steps = 0


class _Timed(_Averaging):
    """Rank 0's clock has all come; the others look after each of their steps whether they were called."""

    def __init__(self, weights: list[nn.Parameter], means: Means, comm: Comm, free: bool, every_s: float) -> None:
        super().__init__(weights, means, comm, free)
        self._every_s, self._since = every_s, perf_counter()

    @property
    def follows(self) -> bool:
        return self._comm.rank > 0

    @property
    def over(self) -> bool:
        return self._held == END

    def epoch_begins(self) -> None:
        self._since = perf_counter()

    def stepped(self) -> None:
        if self._comm.rank:
            while self._listen() == AVERAGE:
                self._meet(AVERAGE)
        elif perf_counter() - self._since >= self._every_s:
            self._meet(AVERAGE)
            self._since = perf_counter()

    def epoch_ends(self) -> None:
        while self._comm.rank and self._next() == AVERAGE:  # rank 0 still takes steps
            self._meet(AVERAGE)
        super().epoch_ends()
