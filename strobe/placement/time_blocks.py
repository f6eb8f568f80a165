"""Consecutive snapshots per rank, cut where the load balances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from strobe.errors import MissingPackageError, OptionError
from strobe.graph import DynamicGraph
from strobe.ops.csr import IntArray
from strobe.placement.base import Placed, Placement, cell_loads
from strobe.placement.blocks import cut
from strobe.placement.hash import Hash
from strobe.placement.loads import loads_of_parts
from strobe.placement.metis import Metis
from strobe.placement.stretches import stretches
from strobe.strategy import Fact

EVEN = 1.15
"""Largest over mean load of ranks up to which a placement counts as even."""


@dataclass(frozen=True, kw_only=True)
class TimeBlocks(Placement):
    """In every window a block of consecutive snapshots per rank, such that the largest block is as small as can be.

    No arc is cut, and a node changes ranks once per block it lives through. Where ranks are too many for the
    snapshots to balance, nodes are cut, too: ``parts`` vertex parts for every block (by METIS; by hash where pymetis
    is not installed), and the rank is block * parts + part. None takes the fewest that are even (the slowest ranks of
    all windows have 1.15 times the mean load or less); where none are, those that come nearest.
    """

    name: ClassVar[str] = "time-blocks"
    parts: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.parts is not None and self.parts < 1:
            raise OptionError(f"nodes are cut into at least 1 part, not {self.parts}")

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("whole snapshots",) if self.parts == 1 else ()

    def place(self, graph: DynamicGraph, windows: Sequence[range], num_ranks: int, *, seed: int = 0) -> Placed:
        spans, loads = stretches(windows, len(graph)), cell_loads(graph)
        shapes = [_Shape.of(spans, loads, num_ranks, parts) for parts in self._allowed(num_ranks)]
        # Shapes whose blocks alone are uneven come last: parts can only add to that, and METIS takes its time.
        shapes.sort(key=lambda shape: (shape.at_best > EVEN, shape.parts))
        found: list[tuple[float, int, Placed]] = []
        for shape in shapes:
            if not found or shape.at_best < min(found)[0]:
                placed = shape.placed(graph, seed)
                found.append((shape.unevenness(loads_of_parts(graph, placed.of_node, shape.parts)), len(found), placed))
            if min(found)[0] <= EVEN:
                break
        return min(found)[2]

    def _allowed(self, num_ranks: int) -> list[int]:
        divisors = [parts for parts in range(1, num_ranks + 1) if num_ranks % parts == 0]
        if self.parts is None or num_ranks == 1:
            return divisors
        if self.parts not in divisors:
            raise OptionError(
                f"{num_ranks} ranks cannot be blocks of {self.parts} parts each: "
                f"choose one of {', '.join(map(str, divisors))}, or none"
            )
        return [self.parts]


@dataclass(frozen=True, eq=False)
class _Shape:
    """Ranks as blocks x parts."""

    spans: list[range]
    block: IntArray  # [T]
    num_blocks: int
    parts: int
    at_best: float
    """How uneven it is if all parts of a block have the same load."""

    @classmethod
    def of(cls, spans: list[range], loads: IntArray, num_ranks: int, parts: int) -> _Shape:
        num_blocks = num_ranks // parts
        pieces = [cut(loads[span.start : span.stop], num_blocks) for span in spans]
        block = np.concatenate([np.zeros(0, np.int64), *pieces])
        return cls(spans, block, num_blocks, parts, _unevenness(spans, block, num_blocks, loads[:, None]))

    def unevenness(self, loads: IntArray) -> float:
        """The same for what every part of every snapshot costs, [T, P]."""
        return _unevenness(self.spans, self.block, self.num_blocks, loads)

    def placed(self, graph: DynamicGraph, seed: int) -> Placed:
        num_ranks = self.num_blocks * self.parts
        return Placed(num_ranks, self.block * self.parts, _vertex_parts(graph, self.parts, seed))


def _unevenness(spans: list[range], block: IntArray, num_blocks: int, loads: IntArray) -> float:
    """What the slowest rank has, over what each would have if all had the same; windows wait for their slowest."""
    slowest = 0
    for span in spans:
        here = slice(span.start, span.stop)
        of_ranks = np.zeros((num_blocks, loads.shape[1]), np.int64)
        np.add.at(of_ranks, block[here], loads[here])
        slowest += int(of_ranks.max())
    mean = float(loads.sum()) / (num_blocks * loads.shape[1])
    return slowest / mean if mean else 1.0


def _vertex_parts(graph: DynamicGraph, num_parts: int, seed: int) -> IntArray:
    """The part of every node, [N]."""
    try:
        return Metis().place(graph, (), num_parts, seed=seed).of_node
    except MissingPackageError:
        return Hash().place(graph, (), num_parts, seed=seed).of_node
