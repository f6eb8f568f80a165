"""Consecutive snapshots per rank, cut where the load balances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.ops.csr import IntArray
from strobe.placement.base import Placed, Placement, cell_loads
from strobe.placement.block_parts import in_parts
from strobe.placement.blocks import cut
from strobe.placement.borders import Borders
from strobe.placement.stretches import stretches
from strobe.placement.ways import EVEN, best, limit, unevenness, way
from strobe.placement.work import Work
from strobe.strategy import Fact


@dataclass(frozen=True, kw_only=True)
class TimeBlocks(Placement):
    """In every window a block of consecutive snapshots per rank, such that the largest block is as small as can be.

    No arc is cut, and a node changes ranks once per block it lives through. Where whole snapshots are uneven (the
    slowest ranks of all windows would have more than 1.05 times the mean load), a block may end within a snapshot,
    whose other cells the next rank has: ranks have the same load, and rows of neighbours travel only in snapshots at
    borders, between the two that share one. Ranks still follow each other in time along every sequence.

    Where ranks are too many for that, more than two to a snapshot or fewer than two snapshots to a rank, there is
    another way: blocks of whole snapshots whose nodes are cut into parts, rank = block * parts + part. What sends
    fewer rows is taken, of what is even. ``parts`` asks for so many of them, everywhere; 1 for whole snapshots.

    Snapshots and nodes are cut by METIS; by hash where pymetis is not installed.
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
        self._check(num_ranks)
        spans = stretches(windows, len(graph))
        pieces = [_Stretch(graph[span.start : span.stop], num_ranks, seed, _computed(span, windows)) for span in spans]
        if num_ranks == 1 or self.parts == 1 or (self.parts is None and _even(pieces)):
            of_snapshot = np.concatenate([np.empty(0, np.int64), *(piece.blocks(num_ranks) for piece in pieces)])
            return Placed.by_snapshot(num_ranks, of_snapshot, graph.num_nodes)
        of_cell: list[IntArray] = [np.empty(0, np.int16)]
        last = np.full(graph.num_nodes, -1, np.int16)
        for piece in pieces:
            owners = piece.best(last) if self.parts is None else piece.in_parts(self.parts, last)
            for snapshot, owner in zip(piece.graph, owners, strict=True):
                last[snapshot.nodes] = owner
            of_cell += owners
        return Placed.by_cell(num_ranks, np.concatenate(of_cell), graph)

    def _check(self, num_ranks: int) -> None:
        divisors = _divisors(num_ranks)
        if self.parts is not None and num_ranks > 1 and self.parts not in divisors:
            raise OptionError(
                f"{num_ranks} ranks cannot be blocks of {self.parts} parts each: "
                f"choose one of {', '.join(map(str, divisors))}, or none"
            )


@dataclass(frozen=True, eq=False)
class _Stretch:
    """A stretch of time, and ways to share it out: owners of all cells of every snapshot. ``last`` is the rank that
    had each node's last cell before it, [N], -1 for none."""

    graph: DynamicGraph
    num_ranks: int
    seed: int
    computed: bool

    @cached_property
    def loads(self) -> IntArray:
        return cell_loads(self.graph)

    def blocks(self, num_blocks: int) -> IntArray:
        """The block of every snapshot, [T], where they stay whole."""
        return cut(self.loads, num_blocks)

    def loads_of_blocks(self, num_blocks: int) -> IntArray:
        return np.bincount(self.blocks(num_blocks), self.loads, num_blocks).astype(np.int64)

    def whole(self) -> list[IntArray]:
        """A block of whole snapshots for every rank."""
        blocks = self.blocks(self.num_ranks).astype(np.int16)
        return [np.full(snapshot.num_nodes, block) for snapshot, block in zip(self.graph, blocks, strict=True)]

    def in_parts(self, parts: int, last: IntArray) -> list[IntArray]:
        """Fewer blocks, and the nodes of each in parts."""
        return in_parts(self.graph, self.blocks(self.num_ranks // parts), parts, last, self.seed)

    def best(self, last: IntArray) -> list[IntArray]:
        """Whole snapshots if they are even, or else snapshots shared at borders, unless nodes in parts send less."""
        whole = self.whole()
        if not self.computed or _even([self]):
            return whole
        borders = Borders.of(self.graph, self.num_ranks)
        ways = [way(self.graph, owners, last, self.num_ranks) for owners in (whole, borders.owners(self.seed))]
        if not borders.in_pairs or ways[-1].uneven > EVEN:
            for parts in _divisors(self.num_ranks)[1:]:
                # Parts only add to how uneven blocks are, and METIS takes its time.
                if unevenness(self.loads_of_blocks(self.num_ranks // parts)[None]) <= limit(ways):
                    ways.append(way(self.graph, self.in_parts(parts, last), last, self.num_ranks))
        return best(ways).owners


def _computed(span: range, windows: Sequence[range]) -> bool:
    """Whether some window holds it; nobody computes the others, such as a last snapshot that is only asked about."""
    return not any(len(window) for window in windows) or any(span.start in window for window in windows)


def _even(pieces: Sequence[_Stretch]) -> bool:
    """Whether whole snapshots are even in all of these together."""
    loads = [piece.loads_of_blocks(piece.num_ranks) for piece in pieces if piece.computed]
    return not loads or unevenness(np.array(loads)) <= EVEN


def _divisors(num_ranks: int) -> list[int]:
    return [parts for parts in range(1, num_ranks + 1) if num_ranks % parts == 0]
