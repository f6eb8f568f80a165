"""Full batch: all training cells in one step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from strobe.batching.base import Batching, BatchSpec
from strobe.batching.windows import Windows
from strobe.graph import DynamicGraph


@dataclass(frozen=True, kw_only=True)
class Full(Batching):
    """One step per epoch over all training snapshots: the exact gradient."""

    name: ClassVar[str] = "full"

    def with_window(self, size: int) -> Batching:
        return Windows(size=size)

    def batches(self, graph: DynamicGraph, times: range, *, hops: int, seed: int = 0) -> list[BatchSpec]:
        del graph, hops, seed
        return [BatchSpec(times, times)]
