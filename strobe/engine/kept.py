"""Examples that stay the same from epoch to epoch, made once and kept as long as there is room for them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch

from strobe.engine.machine import free_bytes

LEAST_BYTES = 1 << 30
"""What may be kept however little memory there is; examples beyond are made anew each time they are asked for."""

_SHARE = 8
"""The part of the machine's free memory that may be taken for examples: one over this."""


@dataclass
class Room:
    """Bytes that are left for examples, of one set of windows or of several together."""

    left: int = LEAST_BYTES

    @classmethod
    def on(cls, device: torch.device, *, fits: bool = False) -> Room:
        """As much as a part of a device's free memory, or without an end where all that is kept is known to fit."""
        return cls(sys.maxsize if fits else max(LEAST_BYTES, free_bytes(device) // _SHARE))


class Sized(Protocol):
    """Something that knows the memory it takes."""

    @property
    def nbytes(self) -> int: ...


Found = TypeVar("Found", bound=Sized)


class KeptExamples:
    """Examples by what was asked, as long as there is room."""

    def __init__(self, room: Room | None = None) -> None:
        self._room = Room() if room is None else room
        self._found: dict[Hashable, tuple[Any, Any]] = {}

    def get(self, asker: object, question: Hashable, make: Callable[[], Found | None]) -> Found | None:
        """The examples, made if they are not here. The asker is held so that no other can take its identity."""
        key = (id(asker), question)
        if key in self._found:
            kept: Found | None = self._found[key][1]
            return kept
        found = make()
        size = 0 if found is None else found.nbytes
        if size <= self._room.left:
            self._room.left -= size
            self._found[key] = (asker, found)
        return found
