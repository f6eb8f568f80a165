"""Cells in chunks that hang together along edges and in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.placement.base import Placed, Placement
from strobe.placement.staying import renamed
from strobe.placement.stretches import stretches
from strobe.placement.work import Work
from strobe.strategy import Fact

if TYPE_CHECKING:  # numba takes its time to load: only who makes chunks needs it
    from strobe.ops.labels import Labels, Links, Sums
    from strobe.placement.growth import Grown

EVEN = 1.15
"""Largest load for 1 of the smallest up to which ranks count as even."""

FINER = (1, 2, 4)
"""Where they are not, chunks are made so many times smaller."""

ROOM = 1.02
"""While single cells move to where most of their bytes are, no rank grows beyond this share of the mean load."""

CUTS = (0.25, 1.0, 4.0)
"""What cutting a sequence is taken to cost where it should be whole, in units of its cost at a place drawn at random.
Which is right depends on where cuts end up, so all are tried."""


@dataclass(frozen=True, kw_only=True)
class Chunks(Placement):
    """Cells in chunks that hang together along edges and in time, shared out such that few bytes travel.

    Chunks grow by label propagation: a cell takes the label that most bytes join it with, along its edges and in its
    sequence, as the model sends them, until a chunk has 1 / ``per_rank`` of a rank's load; then chunks take labels
    from each other. They are assigned by ``metis`` on the graph of chunks, by ``score`` (Algorithm 1 of DGC), or by
    METIS on the ``cells`` themselves; with ``refine`` single cells then move to the rank that they share most bytes
    with. ``loads``: cells and arcs are counted, or the model's seconds are predicted from chunks that were measured on
    this machine. Ranks are even in every window.
    """

    name: ClassVar[str] = "chunks"
    wants_work: ClassVar[bool] = True
    per_rank: int = 16
    assign: Literal["metis", "score", "cells"] = "metis"
    refine: bool = True
    rounds: int = 6
    loads: Literal["counted", "predicted"] = "counted"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.per_rank < 1:
            raise OptionError(f"a rank has at least 1 chunk, not {self.per_rank}")
        if self.rounds < 1:
            raise OptionError(f"labels spread in at least 1 round, not {self.rounds}")

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("chunks",)

    def place(
        self, graph: DynamicGraph, windows: Sequence[range], num_ranks: int, *, seed: int = 0, work: Work | None = None
    ) -> Placed:
        from strobe.placement.chunk_costs import nodes_of_cells

        work = Work() if work is None else work
        of_cell, of_chunk = np.zeros(graph.num_cells, np.int16), np.zeros(graph.num_cells, np.int32)
        last = np.full(graph.num_nodes, -1, np.int16)
        first = 0
        for span in stretches(windows, len(graph)):
            part, here = graph[span.start : span.stop], slice(*graph.cell_ptr[[span.start, span.stop]].tolist())
            if here.start == here.stop:
                continue
            nodes = nodes_of_cells(part)
            owner, chunk = self._shared_out(part, num_ranks, seed, work)
            of_cell[here], of_chunk[here] = renamed(owner, last[nodes], num_ranks), chunk + first
            last[nodes] = of_cell[here]  # of a node's cells the last one counts
            first += int(chunk.max()) + 1
        return replace(Placed.by_cell(num_ranks, of_cell, graph), of_chunk=of_chunk)

    def _shared_out(self, graph: DynamicGraph, num_ranks: int, seed: int, work: Work) -> tuple[Labels, Labels]:
        """Owner and chunk of every cell of a stretch of time."""
        from strobe.placement.cell_links import cell_links
        from strobe.placement.chunk_costs import bytes_cut, typical_length

        links = cell_links(graph, work.arc_bytes, work.state_bytes)
        if not work.cell_bytes or num_ranks == 1:
            return self._placed(graph, links, num_ranks, seed, work)
        a_cut = work.cell_bytes * typical_length(graph) / 4  # half the shorter side, on average
        tried = [
            self._placed(graph, replace(links, chain=work.state_bytes + scale * a_cut), num_ranks, seed, work)
            for scale in CUTS
        ]
        return min(tried, key=lambda each: bytes_cut(graph, links, each[0], num_ranks, work))

    def _placed(
        self, graph: DynamicGraph, links: Links, num_ranks: int, seed: int, work: Work
    ) -> tuple[Labels, Labels]:
        """The same for one way to weigh links. Where chunks are too large to be even, with smaller ones."""
        tried = []
        for finer in FINER:
            tried.append(self._tried(graph, links, num_ranks, seed, work, self.per_rank * finer))
            if tried[-1][0] <= EVEN:
                break
        _, owner, chunk = min(tried, key=lambda each: each[0])
        return owner, chunk

    def _tried(
        self, graph: DynamicGraph, links: Links, num_ranks: int, seed: int, work: Work, per_rank: int
    ) -> tuple[float, Labels, Labels]:
        """The largest load for 1 of the smallest, owners, chunks."""
        from strobe.ops.labels import propagate
        from strobe.placement.assignment import whole_numbers
        from strobe.placement.chunk_costs import counted_cells, loads_of_chunks, sizes_of_chunks
        from strobe.placement.growth import grow, with_owners

        size = counted_cells(graph)
        grown = grow(links, size, int(size.sum()) // (num_ranks * per_rank), rounds=self.rounds, seed=seed)
        load = loads_of_chunks(sizes_of_chunks(graph, grown.of_cell, len(grown.size)), num_ranks, work)
        of_cells = whole_numbers(size * (load / grown.size)[grown.of_cell])
        owner = self._assigned(replace(grown, size=whole_numbers(load)), links, of_cells, num_ranks, seed)
        if self.refine and num_ranks > 1:
            room = int(of_cells.sum() / num_ranks * ROOM)
            owner, _ = propagate(links, of_cells, room, rounds=self.rounds, seed=seed, label=owner)
        has = np.bincount(owner, of_cells, num_ranks)
        return float(has.max() / max(has.min(), 1)), owner, with_owners(grown.of_cell, owner, num_ranks)

    def _assigned(self, grown: Grown, links: Links, load: Sums, num_ranks: int, seed: int) -> Labels:
        from strobe.placement.assignment import by_metis, by_score

        if num_ranks == 1:
            return np.zeros(len(load), np.int32)
        if self.assign == "cells":
            return by_metis(links, load, num_ranks, seed)
        if self.assign == "score":
            return by_score(grown.links, grown.size, num_ranks)[grown.of_cell]
        return by_metis(grown.links, grown.size, num_ranks, seed)[grown.of_cell]
