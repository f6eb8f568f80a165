"""The board: where every rank is. Others read it even when the rank cannot say so any more."""

from __future__ import annotations

import mmap
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

_ENTRY = struct.Struct("<qqd?39s")  # epoch, step, when it was written, alone, phase
_ROOM = 192  # bytes of a rank: which of its two entries holds, and the entries, in cache lines of their own
_FIRST = 64


@dataclass(frozen=True)
class Place:
    """Where a rank is, and since when (on the clock that all processes of a machine share).

    ``alone``: all other ranks wait for this one, without a deadline.
    """

    epoch: int = 0
    step: int = 0
    phase: str = "starting"
    since: float = 0.0
    alone: bool = False

    def __str__(self) -> str:
        return f"epoch {self.epoch}, step {self.step}, {self.phase}"


class Board:
    """One entry per rank in memory that processes share, and that no file system knows: nothing remains of it."""

    def __init__(self, fd: int, num_ranks: int) -> None:
        self.fd = fd
        self._memory = mmap.mmap(fd, num_ranks * _ROOM)

    @classmethod
    @contextmanager
    def new(cls, num_ranks: int) -> Iterator[Board]:
        """An empty board. Processes that get its ``fd`` open the same one."""
        with os.fdopen(os.memfd_create("strobe-board"), "wb") as file:
            file.truncate(num_ranks * _ROOM)
            board = cls(file.fileno(), num_ranks)
            try:
                yield board
            finally:
                board._memory.close()

    def write(self, rank: int, epoch: int, step: int, phase: str, alone: bool = False) -> None:
        """A rank that is killed while it writes leaves the entry before: the new one counts once it is whole."""
        start = rank * _ROOM
        turn = 1 - self._memory[start]
        _ENTRY.pack_into(self._memory, start + _at(turn), epoch, step, monotonic(), alone, phase.encode()[:39])
        self._memory[start] = turn

    def read(self, rank: int) -> Place:
        """Where the rank was last."""
        start = rank * _ROOM
        epoch, step, since, alone, phase = _ENTRY.unpack_from(self._memory, start + _at(self._memory[start]))
        return Place(epoch, step, phase.rstrip(b"\0").decode(errors="ignore"), since, alone) if phase[0] else Place()


def _at(turn: int) -> int:
    return _FIRST * (1 + turn)


class Whereabouts:
    """This rank's entry on the board; and where it was when an error passed, which leaves phases as it goes."""

    def __init__(self, board: Board, rank: int) -> None:
        self._board, self._rank = board, rank
        self._last = Place()
        self._raised = (0, self._last)  # an error's id, not itself: it would keep what its frames hold

    def write(self, epoch: int, step: int, phase: str, alone: bool = False) -> None:
        """For ``Ledger.watch``."""
        error = sys.exc_info()[1]
        if error is not None and not self._led_to(error):
            self._raised = (id(error), self._last)
        self._last = Place(epoch, step, phase)
        self._board.write(self._rank, epoch, step, phase, alone)

    def move(self, phase: str) -> None:
        """Into another phase of the same step."""
        self.write(self._last.epoch, self._last.step, phase)

    def of(self, error: BaseException) -> Place:
        """Where this rank was when the error, or one that led to it, was raised."""
        return self._raised[1] if self._led_to(error) else self._last

    def _led_to(self, error: BaseException) -> bool:
        """Whether the error that was seen last is this one, or led to it."""
        return any(id(each) == self._raised[0] for each in chain(error))


def chain(error: BaseException) -> Iterator[BaseException]:
    """An error and all that led to it."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each
            waiting += [each.__context__, each.__cause__]
