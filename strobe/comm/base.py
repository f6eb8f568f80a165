"""Messages between ranks. With one rank every call returns at once and sends nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from strobe.comm.ledger import Ledger
from strobe.errors import StrobeError

NO_RANK = -1
"""In an array of ranks: there is no rank."""


class CommError(StrobeError):
    """A message was not received or could not be sent. Names the rank, epoch, step, phase, message and cause."""


class Work(ABC):
    """A pending receive or all-reduce."""

    @abstractmethod
    def wait(self) -> Tensor:
        """Block until the operation has completed and return its result."""


class ControlChannel(ABC):
    """A one-way channel of integer messages from rank 0 to all other ranks, delivered in order.

    Neither side blocks the other: rank 0 continues as soon as a message is posted, other ranks may poll.
    """

    @abstractmethod
    def post(self, message: int) -> None:
        """Send a message to all other ranks; return before it has arrived. Rank 0 only."""

    @abstractmethod
    def poll(self) -> int | None:
        """Return the next message, or None if it has not arrived. All ranks but 0."""

    @abstractmethod
    def wait(self) -> int:
        """Block until the next message arrives, up to the deadline. All ranks but 0."""

    @abstractmethod
    def flush(self) -> None:
        """Block until all posted messages have been received. Rank 0 only."""

    @abstractmethod
    def close(self) -> None:
        """Close the channel. Messages that have not been received are lost."""


class Comm(ABC):
    """Point-to-point and collective communication of one rank.

    Every call has a ``kind``, under which the ledger counts its bytes, and a deadline. Collectives must be called by
    all ranks in the same order.

    Raises:
        CommError: in every call, if another rank is gone or does not answer within the deadline.
    """

    rank: int
    num_ranks: int
    ledger: Ledger

    @abstractmethod
    def send(self, dst: int, rows: Tensor, *, kind: str, tag: int = 0) -> None:
        """Send rows to rank ``dst``; return before they have left."""

    @abstractmethod
    def receive(self, src: int, like: Tensor, num_rows: int, *, kind: str, tag: int = 0) -> Work:
        """Receive rows from rank ``src``. Messages of a pair of ranks and a tag arrive in order.

        Args:
            src: the sending rank.
            like: a tensor with the dtype, device and trailing shape of the rows.
            num_rows: how many rows the message has.
            kind: the ledger's name of the message.
            tag: messages of different tags may be received in any order.
        """

    @abstractmethod
    def wait_sends(self) -> None:
        """Block until all sent rows have left."""

    @abstractmethod
    def all_reduce(self, values: Tensor, *, kind: str) -> Tensor:
        """Return the sum over all ranks, bit-identical on each; ``values`` stays unchanged."""

    @abstractmethod
    def all_reduce_async(self, values: Tensor, *, kind: str) -> Work:
        """Sum in the background, ordered only among calls of this method. May overwrite ``values``."""

    @abstractmethod
    def all_reduce_max(self, values: list[float], *, kind: str) -> list[float]:
        """Return the elementwise maximum over all ranks."""

    @abstractmethod
    def all_gather_object(self, value: Any, *, kind: str) -> list[Any]:
        """Return the picklable values of all ranks, in order of rank, on every rank."""

    @abstractmethod
    def gather_object(self, value: Any, *, kind: str) -> list[Any]:
        """Return the picklable values of all ranks, in order of rank, on rank 0; an empty list on other ranks."""

    @abstractmethod
    def broadcast_object(self, value: Any, *, kind: str) -> Any:
        """Return rank 0's picklable value on every rank."""

    @abstractmethod
    def rank_0_alone(self, phase: str) -> AbstractContextManager[None]:
        """A block in which only rank 0 works; the other ranks wait at its end, without the deadline of messages.

        They wait while rank 0's process lives and makes progress (``strobe.comm.launch.failure``), at most
        ``process_group.MAX_RANK_0_ALONE_S``. Every rank must enter the block. Send rank 0's result with
        ``broadcast_object`` afterwards.
        """

    @abstractmethod
    def open_control_channel(self) -> ControlChannel:
        """Open a channel from rank 0 to all others, independent of other messages. Collective."""

    @abstractmethod
    def close(self) -> None:
        """Leave the process group."""

    def all_to_all_rows(
        self, sends: Mapping[int, Tensor], counts: Mapping[int, int], like: Tensor, *, kind: str
    ) -> list[Tensor]:
        """Exchange rows with several ranks.

        Args:
            sends: rows by receiving rank. Empty messages are not sent.
            counts: the number of rows to receive, by sending rank.
            like: a tensor with the dtype, device and trailing shape of the rows.
            kind: the ledger's name of the messages.

        Returns:
            The received rows, one tensor per rank with a positive count, in order of rank.
        """
        return [work.wait() for work in self.all_to_all_rows_async(sends, counts, like, kind=kind)]

    def all_to_all_rows_async(
        self, sends: Mapping[int, Tensor], counts: Mapping[int, int], like: Tensor, *, kind: str
    ) -> list[Work]:
        """As ``all_to_all_rows``, without blocking."""
        receives = [
            self.receive(src, like, num_rows, kind=kind) for src, num_rows in sorted(counts.items()) if num_rows
        ]
        for dst, rows in sorted(sends.items()):
            if len(rows):
                self.send(dst, rows, kind=kind)
        return receives

    def all_reduce_scalars(self, values: list[float], *, kind: str = "scalars") -> list[float]:
        """Return the elementwise sum of a few numbers over all ranks."""
        return [float(v) for v in self.all_reduce(torch.tensor(values, dtype=torch.float64), kind=kind).tolist()]


class SingleRankComm(Comm):
    """Communication of one rank: collectives return their input, there is no rank to send to."""

    def __init__(self) -> None:
        self.rank, self.num_ranks, self.ledger = 0, 1, Ledger()

    def send(self, dst: int, rows: Tensor, *, kind: str, tag: int = 0) -> None:
        raise AssertionError("a single rank cannot send")

    def receive(self, src: int, like: Tensor, num_rows: int, *, kind: str, tag: int = 0) -> Work:
        raise AssertionError("a single rank cannot receive")

    def wait_sends(self) -> None:
        pass

    def all_reduce(self, values: Tensor, *, kind: str) -> Tensor:
        return values.detach().clone()

    def all_reduce_async(self, values: Tensor, *, kind: str) -> Work:
        return CompletedWork(values)

    def all_reduce_max(self, values: list[float], *, kind: str) -> list[float]:
        return [float(value) for value in values]

    def all_gather_object(self, value: Any, *, kind: str) -> list[Any]:
        return [value]

    def gather_object(self, value: Any, *, kind: str) -> list[Any]:
        return [value]

    def broadcast_object(self, value: Any, *, kind: str) -> Any:
        return value

    def rank_0_alone(self, phase: str) -> AbstractContextManager[None]:
        return self.ledger.phase(phase)

    def open_control_channel(self) -> ControlChannel:
        return SingleRankControlChannel()

    def close(self) -> None:
        pass


class CompletedWork(Work):
    """The result of an operation that has already completed."""

    def __init__(self, values: Tensor) -> None:
        self._values = values

    def wait(self) -> Tensor:
        return self._values


class SingleRankControlChannel(ControlChannel):
    """The control channel of a single rank, which has no receiver."""

    def post(self, message: int) -> None:
        check_message(message)

    def poll(self) -> int | None:
        raise AssertionError("rank 0 posts messages and receives none")

    def wait(self) -> int:
        raise AssertionError("rank 0 posts messages and receives none")

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def check_message(message: int) -> None:
    """Check that a control message fits into 63 bits.

    Raises:
        ValueError: if it does not.
    """
    if not 0 <= message < 1 << 63:
        raise ValueError(f"a control message must be a number from 0 to 2^63 - 1, not {message}")
