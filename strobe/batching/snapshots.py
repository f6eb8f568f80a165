"""Batches of whole snapshots: all of them, consecutive windows, or groups that one rank computes each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from strobe.batching.base import Batching, BatchSpec, split_times
from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.strategy import Fact, Need


@dataclass(frozen=True, kw_only=True)
class Full(Batching):
    """One step per epoch over all training snapshots: the exact gradient."""

    name: ClassVar[str] = "full"

    def with_window(self, size: int) -> Batching:
        return Windows(size=size)

    def batches(self, graph: DynamicGraph, times: range, *, hops: int, seed: int = 0) -> list[BatchSpec]:
        del graph, hops, seed
        return [BatchSpec(times, times)]


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


@dataclass(frozen=True, kw_only=True)
class Groups(Batching):
    """Groups of up to ``size`` snapshots: each starts from the initial state and has examples in its last ``stride``.

    Groups end ``stride`` snapshots apart (None: ``size``), so every snapshot has examples in one group. The first
    groups are shorter; the last one may have examples in fewer than ``stride`` snapshots.

    Validation and test snapshots are scored in such groups, too: a prediction reads at most ``size`` snapshots.
    """

    name: ClassVar[str] = "groups"
    gives: ClassVar[tuple[Fact, ...]] = ("batches per rank",)
    needs: ClassVar[tuple[Need, ...]] = (
        Need("replicas", "one rank computes a whole group", "placement replicated, or batching windows"),
    )
    size: int = 8
    stride: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size < 1:
            raise OptionError(f"a group has at least 1 snapshot, not {self.size}")
        if self.stride is not None and not 1 <= self.stride <= self.size:
            raise OptionError(f"groups of {self.size} begin 1 to {self.size} snapshots apart, not {self.stride}")

    @property
    def window(self) -> int:
        return self.size

    def with_window(self, size: int) -> Batching:
        return replace(self, size=size)

    def batches(self, graph: DynamicGraph, times: range, *, hops: int, seed: int = 0) -> list[BatchSpec]:
        del graph, hops, seed
        return self._groups(times, times.start)

    @property
    def history(self) -> int:
        return self.size

    def evaluation_batches(self, times: range) -> list[BatchSpec]:
        return self._groups(times, 0)

    def _groups(self, times: range, first: int) -> list[BatchSpec]:
        """Groups with examples in all of ``times`` that read no snapshot before ``first``."""
        targets = split_times(times, self.stride or self.size)
        starts = [max(part.stop - self.size, first) for part in targets]
        return [
            BatchSpec(range(min(start, part.start), part.stop), part, continues_state=False)
            for start, part in zip(starts, targets, strict=True)
        ]
