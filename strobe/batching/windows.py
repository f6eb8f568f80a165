"""Windows of snapshots, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from strobe.batching.base import Batch, Batching, pieces
from strobe.errors import OptionError
from strobe.graph import DynamicGraph


@dataclass(frozen=True, kw_only=True)
class Windows(Batching):
    """A step per ``size`` consecutive snapshots; states go on from window to window, gradients do not."""

    name: ClassVar[str] = "windows"
    size: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size < 1:
            raise OptionError(f"a window has at least 1 snapshot, not {self.size}")

    @property
    def window(self) -> int:
        return self.size

    def cut(self, size: int) -> Batching:
        return replace(self, size=size)

    def batches(self, graph: DynamicGraph, times: range, *, hops: int, seed: int = 0) -> list[Batch]:
        del graph, hops, seed
        return [Batch(window, window) for window in pieces(times, self.size)]
