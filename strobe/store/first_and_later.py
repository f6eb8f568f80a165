"""A window of snapshots: the first one whole, each later one as its difference to the one before."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, Protocol, TypeVar

from strobe.errors import OptionError


class Change(Protocol):
    """A snapshot as its difference to the one before."""

    @property
    def t(self) -> int: ...


First = TypeVar("First", bound=tuple[Any, ...])
Later = TypeVar("Later", bound=Change)


class FirstAndLater(ABC, Generic[First, Later]):
    """What is kept of snapshots that come in order of time; a first one begins with its number."""

    def __init__(self) -> None:
        self._first: First | None = None
        self._later: list[Later] = []

    @property
    def times(self) -> list[int]:
        """Snapshots that are there, ascending."""
        return [] if self._first is None else [int(self._first[0]), *(later.t for later in self._later)]

    def drop(self) -> int:
        """Takes the oldest snapshot out, and makes the second whole; which one it was."""
        if self._first is None:
            raise OptionError("there is no snapshot to drop: add one first")
        t = int(self._first[0])
        self._first = self._whole(self._later[0].t) if self._later else None
        del self._later[:1]
        return t

    @abstractmethod
    def _whole(self, t: int) -> First:
        """A snapshot as a first one has it."""
