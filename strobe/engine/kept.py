"""Examples that stay the same from epoch to epoch, made once and kept as long as there is room for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from strobe.tasks.base import Examples

EXAMPLE_BYTES = 1 << 30
"""What one set of windows may keep; examples beyond it are made anew each time they are asked for."""


class KeptExamples:
    """Examples by what was asked, up to a number of bytes."""

    def __init__(self, limit: int = EXAMPLE_BYTES) -> None:
        self.left = limit
        self._found: dict[Hashable, tuple[Any, Examples | None]] = {}

    def get(self, asker: object, question: Hashable, make: Callable[[], Examples | None]) -> Examples | None:
        """The examples, made if they are not here. The asker is held so that no other can take its identity."""
        key = (id(asker), question)
        if key in self._found:
            return self._found[key][1]
        examples = make()
        size = 0 if examples is None else num_bytes(examples)
        if size <= self.left:
            self.left -= size
            self._found[key] = (asker, examples)
        return examples


def num_bytes(examples: Examples) -> int:
    """The memory that examples take."""
    tensors = [*(examples.rows or ()), examples.y, *([] if examples.base is None else [examples.base])]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
