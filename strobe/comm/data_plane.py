"""The data plane: what carries rows and sums of tensors between ranks, and what its implementations share."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from time import perf_counter
from typing import Any, ClassVar

from torch import Tensor

from strobe.comm.base import CommError, MessagePipeline, Work
from strobe.comm.ledger import Ledger

ALL = "of all ranks"


class DataPlane(ABC):
    """Transport of tensors. The methods are those of ``Comm``, for tensors of the devices that it carries."""

    name: ClassVar[str]

    allows_reordering: ClassVar[bool]

    @abstractmethod
    def all_to_all_rows_async(
        self, sends: Mapping[int, Tensor], counts: Mapping[int, int], like: Tensor, *, kind: str
    ) -> Sequence[Work]: ...

    @abstractmethod
    def open_pipeline(self, receives: Mapping[tuple[int, int], int], like: Tensor, *, kind: str) -> MessagePipeline: ...

    @abstractmethod
    def all_reduce(self, values: Tensor, *, kind: str) -> Tensor: ...

    @abstractmethod
    def all_reduce_async(self, values: Tensor, *, kind: str) -> Work: ...

    @abstractmethod
    def wait_sends(self) -> None: ...

    def check(self) -> None:  # noqa: B027 - a plane may wait for all its operations
        """Raise ``CommError`` if an operation has failed that the host has not waited for."""

    def close(self) -> None:  # noqa: B027 - a plane may have opened nothing
        """Release what the plane has opened; the process group is closed afterwards."""


class Guard:
    """Ledger, deadline and errors of a rank, for all its process groups. Waits are bounded, errors say where."""

    def __init__(self, rank: int, num_ranks: int, deadline_s: float) -> None:
        self.rank, self.num_ranks = rank, num_ranks
        self.ledger = Ledger()
        self.deadline = timedelta(seconds=deadline_s)

    def wait(
        self, work: Any, kind: str, peer: str, *, collective: bool = False, deadline: timedelta | None = None
    ) -> None:
        """Block until an operation of torch.distributed is done, up to the deadline, and count the seconds."""
        start, deadline = perf_counter(), deadline or self.deadline
        with self.translate_errors(kind, peer):
            if not work.wait(deadline):
                raise RuntimeError(f"no answer for {deadline.total_seconds():g} s")
        self.ledger.seconds["straggler_wait_s" if collective else "exposed_comm_s"] += perf_counter() - start

    def count_sent(self, kind: str, rows: Tensor) -> None:
        """Count a message of rows."""
        self.ledger.count_sent(kind, rows.numel() * rows.element_size(), len(rows))

    def count_all_reduce(self, kind: str, values: Tensor) -> None:
        """Count what a ring all-reduce sends and receives, 2 (W - 1) / W of its bytes, for every algorithm."""
        num_bytes = 2 * (self.num_ranks - 1) * values.numel() * values.element_size() // self.num_ranks
        self.ledger.count_sent(kind, num_bytes, 0)
        self.ledger.count_received(kind, num_bytes)

    @contextmanager
    def translate_errors(self, kind: str, peer: str) -> Iterator[None]:
        """Raise errors of torch.distributed as CommError with rank, position, message and cause."""
        try:
            yield
        except RuntimeError as error:
            message = re.sub(r"^\[[^\]]*\] ?", "", str(error).strip())  # drops the source line in gloo
            cause = message.splitlines()[0].partition(" This is typically")[0] if message else type(error).__name__
            raise self.error(kind, peer, cause) from error

    def error(self, kind: str, peer: str, cause: str) -> CommError:
        """Build the error of a failed operation, with rank and position."""
        ledger = self.ledger
        where = f"epoch {ledger.epoch_now}, step {ledger.step_now}, {ledger.phase_now}"
        return CommError(f"rank {self.rank} stopped in {where}: {kind} {peer} failed: {cause}")


UP, DOWN = "up", "down"
"""Directions of messages in an ``OrderedPipeline``: to higher and to lower ranks."""

IssueMessages = Callable[[str, Mapping[int, Tensor], Mapping[int, int]], Mapping[int, Work]]
"""``issue(direction, sends, counts)``: start sends and receives of one direction as one operation, by rank. Operations
of a direction are matched in the order in which ranks issue them. Returns the receives."""


class OrderedPipeline(MessagePipeline):
    """A pipeline whose operations cannot deadlock, even if every one blocked the host until its peers have issued it.

    Each direction is a channel of its own. In ascending order of keys, a rank issues on *up* its receives of a key,
    then its sends of that key, and likewise on *down*. Consider the pending message with the smallest (key, direction,
    sending rank): all that its two ranks issue before it is complete, and what its sender computes before needs
    messages of smaller keys only. So it completes, and then the next. Receives are issued as late as this order allows
    for sends, but do not wait for this rank's computation.
    """

    def __init__(self, rank: int, receives: Mapping[tuple[int, int], int], issue: IssueMessages) -> None:
        self._rank, self._issue = rank, issue
        self._due: deque[tuple[int, dict[int, int]]] = deque()  # receives that are not issued, by key
        for (key, src), num_rows in sorted(receives.items()):
            if not self._due or self._due[-1][0] != key:
                self._due.append((key, {}))
            self._due[-1][1][src] = num_rows
        self._issued: dict[tuple[int, int], Work] = {}

    def send(self, key: int, rows: Mapping[int, Tensor]) -> None:
        self._issue_receives(below=key)
        due = self._due.popleft()[1] if self._due and self._due[0][0] == key else {}
        self._issue_key(key, due, rows)

    def receive(self, key: int, src: int) -> Tensor:
        self._issue_receives(below=key + 1)
        return self._issued.pop((key, src)).wait()

    def _issue_receives(self, *, below: int) -> None:
        while self._due and self._due[0][0] < below:
            self._issue_key(*self._due.popleft(), {})

    def _issue_key(self, key: int, counts: Mapping[int, int], rows: Mapping[int, Tensor]) -> None:
        for direction in (UP, DOWN):
            receives = {src: count for src, count in counts.items() if (src < self._rank) == (direction == UP)}
            sends = {dst: each for dst, each in rows.items() if (dst > self._rank) == (direction == UP)}
            if receives:
                works = self._issue(direction, {}, receives)
                self._issued.update({(key, src): work for src, work in works.items()})
            if sends:
                self._issue(direction, sends, {})
