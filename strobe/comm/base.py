"""What ranks say to each other. One rank alone says nothing: the same calls, no messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
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

    def close(self) -> None:
        pass


class Here(Arrival):
    """Nothing to wait for."""

    def __init__(self, values: Tensor) -> None:
        self._values = values

    def wait(self) -> Tensor:
        return self._values
