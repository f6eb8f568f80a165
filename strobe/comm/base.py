"""What ranks say to each other. One rank alone says nothing: the same calls, no messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from strobe.comm.ledger import Ledger
from strobe.errors import StrobeError


class CommError(StrobeError):
    """A message did not come or could not be sent: names the rank, what it was doing, and the cause."""


class Arrival(ABC):
    """A message on its way."""

    @abstractmethod
    def wait(self) -> Tensor:
        """The rows, once they are here."""


class Line(ABC):
    """Rank 0 calls out words, numbers from 0 on; every other rank hears all of them, in order, when it listens.

    Nobody waits for anybody: rank 0 goes on as soon as it has called, others go on where nothing was called yet.
    """

    @abstractmethod
    def call(self, word: int) -> None:
        """On rank 0: says a word to all others; returns before they have heard it."""

    @abstractmethod
    def heard(self) -> int | None:
        """On the others: the next word, if it is here already."""

    @abstractmethod
    def next(self) -> int:
        """On the others: the next word; waits for it, up to the deadline."""

    @abstractmethod
    def settle(self) -> None:
        """On rank 0: waits until all words have been heard."""

    @abstractmethod
    def close(self) -> None:
        """Hangs up. Words that somebody has not heard are lost to him."""


class Comm(ABC):
    """Messages between ranks. Every call has a name and a deadline, and is counted in the ledger."""

    rank: int
    num_ranks: int
    ledger: Ledger

    @abstractmethod
    def send(self, to: int, rows: Tensor, *, kind: str, tag: int = 0) -> None:
        """Sends rows; returns before they have left. The receiver knows how many they are."""

    @abstractmethod
    def receive(self, source: int, like: Tensor, num_rows: int, *, kind: str, tag: int = 0) -> Arrival:
        """Expects so many rows of the shape and kind of ``like``'s. Messages of a pair and tag come in order."""

    @abstractmethod
    def settle(self) -> None:
        """Waits until all that was sent has left."""

    @abstractmethod
    def sum(self, values: Tensor, *, kind: str) -> Tensor:
        """The sum over all ranks, the same bits on each; all must ask."""

    @abstractmethod
    def sum_later(self, values: Tensor, *, kind: str) -> Arrival:
        """The same in the background, in its own order: independent of all other messages."""

    @abstractmethod
    def largest(self, values: list[float], *, kind: str) -> list[float]:
        """The largest of each of a few numbers over all ranks, the same on each; all must ask."""

    @abstractmethod
    def gather(self, value: Any, *, kind: str) -> list[Any]:
        """Plain values of all ranks, in order of rank, on every rank."""

    @abstractmethod
    def collect(self, value: Any, *, kind: str) -> list[Any]:
        """Plain values of all ranks, in order of rank, on rank 0; nothing on the others."""

    @abstractmethod
    def share(self, value: Any, *, kind: str) -> Any:
        """Rank 0's value."""

    @abstractmethod
    def rank_0_alone(self, phase: str) -> AbstractContextManager[None]:
        """Rank 0 does inside the block what only rank 0 does; the other ranks wait at its end, without a deadline.

        They wait as long as rank 0's process lives and makes progress (``strobe.comm.rank_verdict``), at most
        ``group.LONGEST_ALONE_S``. Every rank must enter the block. What rank 0 found is sent by another call, such as
        ``share``.
        """

    @abstractmethod
    def line(self) -> Line:
        """A line from rank 0 to all others, independent of all other messages; all must ask."""

    @abstractmethod
    def close(self) -> None:
        """Leaves the group."""

    def swap(self, sends: Mapping[int, Tensor], counts: Mapping[int, int], like: Tensor, *, kind: str) -> list[Tensor]:
        """Sends rows to some ranks and gives those of others, in order of rank; empty ones are not sent at all."""
        return [arrival.wait() for arrival in self.swap_later(sends, counts, like, kind=kind)]

    def swap_later(
        self, sends: Mapping[int, Tensor], counts: Mapping[int, int], like: Tensor, *, kind: str
    ) -> list[Arrival]:
        """The same while this rank does something else."""
        arrivals = [self.receive(source, like, rows, kind=kind) for source, rows in sorted(counts.items()) if rows]
        for to, rows in sorted(sends.items()):
            if len(rows):
                self.send(to, rows, kind=kind)
        return arrivals

    def agree(self, values: list[float], *, kind: str = "agree") -> list[float]:
        """Sums of a few numbers over all ranks."""
        return [float(v) for v in self.sum(torch.tensor(values, dtype=torch.float64), kind=kind).tolist()]


class Alone(Comm):
    """One rank: nobody to talk to."""

    def __init__(self) -> None:
        self.rank, self.num_ranks, self.ledger = 0, 1, Ledger()

    def send(self, to: int, rows: Tensor, *, kind: str, tag: int = 0) -> None:
        raise AssertionError("one rank has nobody to send to")

    def receive(self, source: int, like: Tensor, num_rows: int, *, kind: str, tag: int = 0) -> Arrival:
        raise AssertionError("one rank has nobody to hear from")

    def settle(self) -> None:
        pass

    def sum(self, values: Tensor, *, kind: str) -> Tensor:
        return values.detach().clone()

    def sum_later(self, values: Tensor, *, kind: str) -> Arrival:
        return Here(values)

    def largest(self, values: list[float], *, kind: str) -> list[float]:
        return [float(value) for value in values]

    def gather(self, value: Any, *, kind: str) -> list[Any]:
        return [value]

    def collect(self, value: Any, *, kind: str) -> list[Any]:
        return [value]

    def share(self, value: Any, *, kind: str) -> Any:
        return value

    def rank_0_alone(self, phase: str) -> AbstractContextManager[None]:
        return self.ledger.phase(phase)

    def line(self) -> Line:
        return Unheard()

    def close(self) -> None:
        pass


class Here(Arrival):
    """Nothing to wait for."""

    def __init__(self, values: Tensor) -> None:
        self._values = values

    def wait(self) -> Tensor:
        return self._values


class Unheard(Line):
    """One rank calls, and nobody is there."""

    def call(self, word: int) -> None:
        check_word(word)

    def heard(self) -> int | None:
        raise AssertionError("one rank has nobody to hear from")

    def next(self) -> int:
        raise AssertionError("one rank has nobody to hear from")

    def settle(self) -> None:
        pass

    def close(self) -> None:
        pass


def check_word(word: int) -> None:
    """A word is what 63 bits can say."""
    if not 0 <= word < 1 << 63:
        raise ValueError(f"words of a line are numbers from 0 to 2^63 - 1, not {word}")
