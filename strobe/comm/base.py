"""Messages between ranks. With one rank every call returns at once and sends nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
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


class MessagePipeline(ABC):
    """Messages of one pass through a pipeline of ranks, matched by order alone: there are no tags.

    Every message has a key. Each rank sends in ascending order of keys, and needs a message only for work whose own
    messages have larger keys. Therefore all ranks can issue sends and receives in one order, and none waits in a cycle.
    """

    @abstractmethod
    def send(self, key: int, rows: Mapping[int, Tensor]) -> None:
        """Send the messages of ``key``, by receiving rank; return before they have left. Keys ascend."""

    @abstractmethod
    def receive(self, key: int, src: int) -> Tensor:
        """Return the rows of the message of ``key`` from rank ``src``."""


class Comm(ABC):
    """Messages and collectives of one rank.

    Rows travel on the data plane (``all_to_all_rows``, ``open_pipeline``, ``all_reduce``, ``all_reduce_async``), where
    tensors are; objects, numbers and control messages on the control plane. Every call has a ``kind``, under which the
    ledger counts its bytes, and a deadline.

    All ranks that take part in an operation must call it in the same order relative to other operations. Then nothing
    deadlocks, even where the host waits for the device unexpectedly (an allocation, a kernel that is loaded).

    Raises:
        CommError: in every call, if another rank is gone or does not answer within the deadline.
    """

    rank: int
    num_ranks: int
    ledger: Ledger

    allows_reordering: bool = True
    """Whether ranks may call ``all_reduce_async`` at different points between their other operations."""

    @property
    def backend(self) -> str | None:
        """What carries rows: ``gloo`` or ``nccl``; None with one rank."""
        return None

    @abstractmethod
    def all_to_all_rows_async(
        self, sends: Mapping[int, Tensor], counts: Mapping[int, int], like: Tensor, *, kind: str
    ) -> Sequence[Work]:
        """As ``all_to_all_rows``, without blocking."""

    @abstractmethod
    def open_pipeline(self, receives: Mapping[tuple[int, int], int], like: Tensor, *, kind: str) -> MessagePipeline:
        """Begin a pass through a pipeline.

        Args:
            receives: the number of rows of every message that this rank receives, by (key, sending rank).
            like: a tensor with the dtype, device and trailing shape of the rows.
            kind: the ledger's name of the messages.
        """

    @abstractmethod
    def wait_sends(self) -> None:
        """Block until all sent rows have left."""

    @abstractmethod
    def all_reduce(self, values: Tensor, *, kind: str) -> Tensor:
        """Return the sum over all ranks, bit-identical on each; ``values`` stays unchanged."""

    @abstractmethod
    def all_reduce_async(self, values: Tensor, *, kind: str) -> Work:
        """Sum in the background. Ordered only among calls of this method if ``allows_reordering``. May overwrite
        ``values``."""

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

    def all_reduce_scalars(self, values: list[float], *, kind: str = "scalars") -> list[float]:
        """Return the elementwise sum of a few numbers over all ranks."""
        return [float(v) for v in self.all_reduce(torch.tensor(values, dtype=torch.float64), kind=kind).tolist()]


class SingleRankComm(Comm):
    """Communication of one rank: collectives return their input, there is no rank to send to."""

    def __init__(self) -> None:
        self.rank, self.num_ranks, self.ledger = 0, 1, Ledger()

    def all_to_all_rows_async(
        self, sends: Mapping[int, Tensor], counts: Mapping[int, int], like: Tensor, *, kind: str
    ) -> Sequence[Work]:
        assert not sends, "a single rank cannot send"
        assert not counts, "a single rank cannot receive"
        return []

    def open_pipeline(self, receives: Mapping[tuple[int, int], int], like: Tensor, *, kind: str) -> MessagePipeline:
        assert not receives, "a single rank cannot receive"
        return SingleRankPipeline()

    def wait_sends(self) -> None:
        pass

    def all_reduce(self, values: Tensor, *, kind: str) -> Tensor:
        return values.detach().clone()

    def all_reduce_async(self, values: Tensor, *, kind: str) -> Work:
        return CompletedWork(values)

    def all_reduce_max(self, values: list[float], *, kind: str) -> list[float]:
        return [float(value) for value in values]

    def all_reduce_scalars(self, values: list[float], *, kind: str = "scalars") -> list[float]:
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


class SingleRankPipeline(MessagePipeline):
    """A pipeline of one rank, which has no messages."""

    def send(self, key: int, rows: Mapping[int, Tensor]) -> None:
        assert not rows, "a single rank cannot send"

    def receive(self, key: int, src: int) -> Tensor:
        raise AssertionError("a single rank cannot receive")


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
