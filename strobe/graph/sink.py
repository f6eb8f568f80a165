"""Sinks: destinations of a graph's arrays while it is built."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from strobe.graph.arrays import Array

if TYPE_CHECKING:
    from strobe.graph.dynamic import DynamicGraph


class Sink(Protocol):
    """Destination of a graph's arrays."""

    scratch_dir: Path | None

    def append(self, name: str, rows: Array) -> None:
        """Append rows to an array; its dtype widens if the rows require it."""

    def read(self, name: str, start: int, stop: int) -> Array:
        """Return rows that were appended to an array."""

    def mark(self) -> Any:
        """Return the current end of all arrays, for ``rollback``."""

    def rollback(self, mark: Any) -> None:
        """Remove the rows that were appended since ``mark``."""

    def arrays(self) -> dict[str, Array]:
        """Return all arrays written so far, by name."""

    def finish(self, graph: DynamicGraph) -> DynamicGraph:
        """Finalize the arrays and return the graph over them."""


class MemorySink:
    """Sink that keeps arrays in memory."""

    scratch_dir: Path | None = None

    def __init__(self) -> None:
        self._chunks: dict[str, list[Array]] = {}
        self._ends: dict[str, list[int]] = {}

    def append(self, name: str, rows: Array) -> None:
        ends = self._ends.setdefault(name, [])
        self._chunks.setdefault(name, []).append(rows)
        ends.append((ends[-1] if ends else 0) + len(rows))

    def read(self, name: str, start: int, stop: int) -> Array:
        chunks, ends = self._chunks[name], self._ends[name]
        parts = []
        for k in range(bisect_right(ends, start), len(ends)):
            first = ends[k] - len(chunks[k])
            if first >= stop:
                break
            parts.append(chunks[k][max(start - first, 0) : stop - first])
        return parts[0] if len(parts) == 1 else np.concatenate([chunks[0][:0], *parts])

    def mark(self) -> Any:
        return {name: len(chunks) for name, chunks in self._chunks.items()}

    def rollback(self, mark: Any) -> None:
        for name, chunks in self._chunks.items():
            count = mark.get(name, 0)
            del chunks[count:], self._ends[name][count:]

    def arrays(self) -> dict[str, Array]:
        # An empty array has no meaningful dtype: [] is float64.
        filled = {name: [c for c in chunks if len(c)] or chunks[:1] for name, chunks in self._chunks.items() if chunks}
        joined = {name: np.concatenate(chunks) for name, chunks in filled.items()}
        for array in joined.values():
            array.flags.writeable = False
        return joined

    def finish(self, graph: DynamicGraph) -> DynamicGraph:
        return graph
