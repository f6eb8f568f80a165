"""Consecutive windows of snapshots."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from strobe.batching.base import Batching, BatchSpec, split_times
from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.strategy import Fact


@dataclass(frozen=True, kw_only=True)
class Windows(Batching):
    """A step per ``size`` consecutive snapshots: states are carried from window to window, gradients are not.

    Windows of 1 snapshot can also be made of snapshots as they arrive.
    """

    name: ClassVar[str] = "windows"
    size: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size < 1:
            raise OptionError(f"a window has at least 1 snapshot, not {self.size}")

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("streaming batches",) if self.size == 1 else ()

    @property
    def window(self) -> int:
        return self.size

    def with_window(self, size: int) -> Batching:
        return replace(self, size=size)

    def batches(self, graph: DynamicGraph, times: range, *, hops: int, seed: int = 0) -> list[BatchSpec]:
        del graph, hops, seed
        return [BatchSpec(window, window) for window in split_times(times, self.size)]
