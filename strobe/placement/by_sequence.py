"""Sequences shared out by number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from strobe.graph import DynamicGraph
from strobe.placement.base import Placed, Placement
from strobe.placement.loads import even_sequences
from strobe.placement.work import Work
from strobe.strategy import Fact


@dataclass(frozen=True, kw_only=True)
class BySequence(Placement):
    """As many sequences on every rank, nodes in order of id. No state ever moves; edges are cut as the order of ids
    has it."""

    name: ClassVar[str] = "by-sequence"

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("whole sequences",)

    def place(
        self, graph: DynamicGraph, windows: Sequence[range], num_ranks: int, *, seed: int = 0, work: Work | None = None
    ) -> Placed:
        del windows, seed, work
        return Placed.by_node(num_ranks, even_sequences(graph, num_ranks), len(graph))
