"""Nodes shared out by lot: even, blind to edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from strobe.graph import DynamicGraph, Snapshot
from strobe.ops.csr import IntArray
from strobe.placement.arriving import Arriving, AsTheyArrive
from strobe.placement.base import Placed
from strobe.placement.work import Work
from strobe.strategy import Fact


@dataclass(frozen=True, kw_only=True)
class Hash(AsTheyArrive):
    """Every node, with all its cells, on a rank drawn by a hash of its number.

    Cost: with W ranks about (W - 1) / W of all arcs are cut.
    """

    name: ClassVar[str] = "hash"

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("whole sequences",)

    def place(
        self, graph: DynamicGraph, windows: Sequence[range], num_ranks: int, *, seed: int = 0, work: Work | None = None
    ) -> Placed:
        """All nodes at once: nothing that arrives changes a hash."""
        del windows, work
        return Placed.by_node(num_ranks, drawn(np.arange(graph.num_nodes), num_ranks, seed), len(graph))

    def start(self, num_ranks: int, *, seed: int = 0) -> Arriving:
        """Ranks are drawn when nodes arrive."""
        return _Drawn(num_ranks, seed)


class _Drawn(Arriving):
    def __init__(self, num_ranks: int, seed: int) -> None:
        self._num_ranks, self._seed = num_ranks, seed

    def arrive(self, snapshot: Snapshot) -> IntArray:
        return drawn(snapshot.nodes, self._num_ranks, self._seed)

    def remembered(self) -> dict[str, Any]:
        return {}  # a hash has no past

    def recall(self, found: dict[str, Any]) -> None:
        del found


def drawn(nodes: IntArray, num_ranks: int, seed: int) -> IntArray:
    """A rank for each of some nodes, the same whoever asks and when."""
    number = nodes.astype(np.uint64) + np.uint64(seed)
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    number ^= number >> np.uint64(31)
    return (number % np.uint64(num_ranks)).astype(np.int16)
