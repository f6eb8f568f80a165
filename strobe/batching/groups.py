"""Snapshot groups: windows that are samples of their own, each computed whole by one rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from strobe.batching.base import Batch, Batching, pieces
from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.strategy import Fact, Need


@dataclass(frozen=True, kw_only=True)
class Groups(Batching):
    """Groups of up to ``size`` snapshots: each begins with fresh states and asks about its last ``stride`` ones.

    Groups end ``stride`` snapshots apart (None: ``size``), so that every snapshot is asked about once. The first ones
    are shorter where time has just begun; a last one that asks about fewer reaches back to ``size`` all the same.

    Validation and test snapshots are scored in the same groups: a prediction reads at most ``size`` snapshots.
    """

    name: ClassVar[str] = "groups"
    size: int = 8
    stride: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size < 1:
            raise OptionError(f"a group has at least 1 snapshot, not {self.size}")
        if self.stride is not None and not 1 <= self.stride <= self.size:
            raise OptionError(f"groups of {self.size} begin 1 to {self.size} snapshots apart, not {self.stride}")

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("batches per rank",)

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need("replicas", "a group is computed whole by one rank", "placement replicated, or batching windows"),)

    @property
    def window(self) -> int:
        return self.size

    def cut(self, size: int) -> Batching:
        return replace(self, size=size)

    def batches(self, graph: DynamicGraph, times: range, *, hops: int, seed: int = 0) -> list[Batch]:
        del graph, hops, seed
        return self._groups(times, times.start)

    def evaluation_batches(self, times: range) -> list[Batch]:
        return self._groups(times, 0)

    def _groups(self, times: range, first: int) -> list[Batch]:
        """Groups that ask about all of ``times`` and read no snapshot before ``first``."""
        asked = pieces(times, self.stride or self.size)
        starts = [max(part.stop - self.size, first) for part in asked]
        return [
            Batch(range(min(start, part.start), part.stop), part, carries=False)
            for start, part in zip(starts, asked, strict=True)
        ]
