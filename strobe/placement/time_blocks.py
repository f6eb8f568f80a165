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
from strobe.placement.loads import loads_of_nodes, loads_of_ranks
from strobe.placement.metis import Metis
from strobe.placement.staying import renamed
from strobe.placement.stretches import stretches
from strobe.placement.work import Work
from strobe.strategy import Fact

EVEN = 1.15
"""Largest over mean load of ranks up to which a placement counts as even."""


@dataclass(frozen=True, kw_only=True)
class TimeBlocks(Placement):
    """In every window a block of consecutive snapshots per rank, such that the largest block is as small as can be.

    No arc is cut, and a node changes ranks once per block it lives through. Where ranks are too many for the
    snapshots to balance, the nodes of every block are cut, too, into ``parts`` (by METIS; by hash where pymetis is
    not installed): the rank is block * parts + part. None takes the fewest parts that are even: the slowest ranks of
    all windows have at most 1.15 times the mean load. Where none are it takes what comes nearest.
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

    def place(
        self, graph: DynamicGraph, windows: Sequence[range], num_ranks: int, *, seed: int = 0, work: Work | None = None
    ) -> Placed:
        del work
        spans, loads = stretches(windows, len(graph)), cell_loads(graph)
        shapes = [_Shape.of(spans, loads, num_ranks, parts) for parts in self._allowed(num_ranks)]
        # Shapes whose blocks alone are uneven come last: parts can only add to that, and METIS takes its time.
        shapes.sort(key=lambda shape: (shape.at_best > EVEN, shape.parts))
        best, least = None, np.inf
        for shape in shapes:
            if least <= EVEN or shape.at_best >= least:
                continue
            placed = shape.placed(graph, seed)
            uneven = _unevenness(loads_of_ranks(graph, placed, spans))
            if uneven < least:
                best, least = placed, uneven
        assert best is not None  # the first shape is always tried
        return best

    def _allowed(self, num_ranks: int) -> list[int]:
        """Into how many parts nodes may be cut."""
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
    """Ranks as blocks x parts: the blocks of every stretch of time."""

    num_ranks: int
    parts: int
    spans: list[range]
    block: IntArray  # [T]
    at_best: float
    """How uneven it is if all parts of a block have the same load."""

    @classmethod
    def of(cls, spans: list[range], loads: IntArray, num_ranks: int, parts: int) -> _Shape:
        num_blocks = num_ranks // parts
        block = np.zeros(loads.size, np.int64)
        of_blocks = np.zeros((len(spans), num_blocks), np.int64)
        for at, span in enumerate(spans):
            here = slice(span.start, span.stop)
            block[here] = cut(loads[here], num_blocks)
            np.add.at(of_blocks[at], block[here], loads[here])
        return cls(num_ranks, parts, spans, block, _unevenness(of_blocks))

    def placed(self, graph: DynamicGraph, seed: int) -> Placed:
        if self.parts == 1:
            return Placed.by_snapshot(self.num_ranks, self.block, graph.num_nodes)
        of_cell = np.zeros(graph.num_cells, np.int16)
        part = np.full(graph.num_nodes, -1, np.int16)
        for times in self._pieces():
            piece = graph[times.start : times.stop]
            there = np.flatnonzero(loads_of_nodes(piece))
            # States change ranks between blocks whatever the parts are: so every block may have its own, even ones.
            part[there] = renamed(_vertex_parts(piece, self.parts, seed)[there], part[there], self.parts)
            first = int(self.block[times.start]) * self.parts
            of_piece = [first + part[snapshot.nodes] for snapshot in piece]
            of_cell[graph.cell_ptr[times.start] : graph.cell_ptr[times.stop]] = np.concatenate(of_piece)
        return Placed.by_cell(self.num_ranks, of_cell, graph)

    def _pieces(self) -> list[range]:
        """The times of all blocks of all stretches."""
        found = []
        for span in self.spans:
            of_span = self.block[span.start : span.stop]
            starts = np.flatnonzero(np.diff(of_span, prepend=-1)) + span.start
            found += [range(first, last) for first, last in zip(starts, [*starts[1:], span.stop], strict=True)]
        return found


def _unevenness(loads: IntArray) -> float:
    """What the slowest ranks have, over what all would have if they shared evenly: loads by stretch and rank."""
    mean = float(loads.mean(axis=1).sum())
    return float(loads.max(axis=1).sum()) / mean if mean else 1.0


def _vertex_parts(graph: DynamicGraph, num_parts: int, seed: int) -> IntArray:
    """The part of every node, [N]."""
    try:
        return Metis().place(graph, (), num_parts, seed=seed).of_node
    except MissingPackageError:
        return Hash().place(graph, (), num_parts, seed=seed).of_node
