"""A cache of examples within a budget of bytes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch

from strobe.engine.machine import free_bytes

MIN_BYTES = 1 << 30
"""Bytes that are cached however little memory there is; examples beyond are rebuilt for each use."""

_FRACTION = 8
"""The part of the machine's free memory that may be taken for examples: one over this."""


class HasBytes(Protocol):
    """Examples of any form."""

    @property
    def nbytes(self) -> int: ...


Cached = TypeVar("Cached", bound=HasBytes)


@dataclass
class ByteBudget:
    """Bytes that are left for examples, of one set of windows or of several together."""

    left: int = MIN_BYTES

    @classmethod
    def of_device(cls, device: torch.device, *, fits: bool = False) -> ByteBudget:
        """A part of a device's free memory; unlimited where everything is known to fit."""
        return cls(sys.maxsize if fits else max(MIN_BYTES, free_bytes(device) // _FRACTION))


class ExampleCache:
    """Examples by owner and key, as long as the budget lasts."""

    def __init__(self, room: ByteBudget | None = None) -> None:
        self._budget = ByteBudget() if room is None else room
        self._cached: dict[Hashable, tuple[Any, Any]] = {}

    def get(self, owner: object, key: Hashable, make: Callable[[], Cached | None]) -> Cached | None:
        """The cached examples, built if they are absent. The owner is held, so that its id stays unique."""
        place = (id(owner), key)
        if place in self._cached:
            known: Cached | None = self._cached[place][1]
            return known
        examples = make()
        size = 0 if examples is None else examples.nbytes
        if size <= self._budget.left:
            self._budget.left -= size
            self._cached[place] = (owner, examples)
        return examples
