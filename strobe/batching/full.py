"""All training cells at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from strobe.batching.base import Batch, Batching
from strobe.batching.windows import Windows
from strobe.graph import DynamicGraph


@dataclass(frozen=True, kw_only=True)
class Full(Batching):
    """One step per epoch, over all training snapshots: the exact gradient."""

    name: ClassVar[str] = "full"

    def cut(self, size: int) -> Batching:
        return Windows(size=size)

    def batches(self, graph: DynamicGraph, times: range, *, hops: int, seed: int = 0) -> list[Batch]:
        del graph, hops, seed
        return [Batch(times, times)]
