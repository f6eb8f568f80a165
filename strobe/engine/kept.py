"""Examples that stay the same from epoch to epoch, made once and kept as long as there is room for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar

EXAMPLE_BYTES = 1 << 30
"""What one set of windows may keep; examples beyond it are made anew each time they are asked for."""


class Sized(Protocol):
    """Something that knows the memory it takes."""

    @property
    def nbytes(self) -> int: ...


Found = TypeVar("Found", bound=Sized)


class KeptExamples:
    """Examples by what was asked, up to a number of bytes."""

    def __init__(self, limit: int = EXAMPLE_BYTES) -> None:
        self.left = limit
        self._found: dict[Hashable, tuple[Any, Any]] = {}

    def get(self, asker: object, question: Hashable, make: Callable[[], Found | None]) -> Found | None:
        """The examples, made if they are not here. The asker is held so that no other can take its identity."""
        key = (id(asker), question)
        if key in self._found:
            kept: Found | None = self._found[key][1]
            return kept
        found = make()
        size = 0 if found is None else found.nbytes
        if size <= self.left:
            self.left -= size
            self._found[key] = (asker, found)
        return found
