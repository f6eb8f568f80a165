"""How a stretch of time becomes chunks, and chunks become ranks'."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from strobe.graph import DynamicGraph
from strobe.ops.labels import Labels, Links, Sums, propagate
from strobe.placement.assignment import by_metis, by_score, whole_numbers
from strobe.placement.cell_links import cell_links
from strobe.placement.chunk_costs import (
    bytes_cut,
    counted_cells,
    loads_of_chunks,
    nodes_of_cells,
    sizes_of_chunks,
    typical_length,
)
from strobe.placement.growth import Grown, grow, with_owners
from strobe.placement.metis import Metis
from strobe.placement.work import Work

if TYPE_CHECKING:
    from strobe.placement.chunks import Chunks

EVEN = 1.15
"""Largest load for 1 of the smallest up to which ranks count as even."""

FINER = (1, 2, 4)
"""Where they are not, chunks are made so many times smaller."""

ROOM = 1.02
"""While single cells move to where most of their bytes are, no rank grows beyond this share of the mean load."""

CUTS = (0.25, 1.0, 4.0)
"""What cutting a sequence is taken to cost where it should be whole, in units of its cost at a place drawn at random.
Which is right depends on where cuts end up, so all are tried."""

Found = tuple[Labels, Labels]
"""Owner and chunk of every cell."""


@dataclass(frozen=True, eq=False)
class Chunking:
    """A stretch of time that is shared out among ranks, the way a placement says."""

    how: Chunks
    graph: DynamicGraph
    num_ranks: int
    seed: int
    work: Work

    def shared_out(self) -> Found:
        """The way that cuts the fewest bytes. There are several where a sequence should be whole and may be cut."""
        links, work = self._links, self.work
        if self.num_ranks == 1 or not work.cell_bytes:
            return self._even(links)
        a_cut = work.cell_bytes * typical_length(self.graph) / 4  # half the shorter side, on average
        tried = [self._even(replace(links, chain=work.state_bytes + scale * a_cut)) for scale in CUTS]
        return min([*tried, self._whole_sequences(tried[-1][1])], key=lambda each: self._bytes(each[0]))

    @cached_property
    def _links(self) -> Links:
        return cell_links(self.graph, self.work.arc_bytes, self.work.state_bytes)

    @cached_property
    def _size(self) -> Sums:
        return counted_cells(self.graph)

    def _bytes(self, owner: Labels) -> float:
        return bytes_cut(self.graph, self._links, owner, self.num_ranks, self.work)

    def _whole_sequences(self, chunk: Labels) -> Found:
        of_node = Metis().place(self.graph, (), self.num_ranks, seed=self.seed).of_node
        owner = of_node[nodes_of_cells(self.graph)].astype(np.int32)
        return owner, with_owners(chunk, owner, self.num_ranks)

    def _even(self, links: Links) -> Found:
        """One way to weigh links. Where chunks are too large for even ranks, with smaller ones."""
        tried: list[tuple[float, Found]] = []
        for finer in FINER:
            tried.append(self._grown(links, self.how.per_rank * finer))
            if tried[-1][0] <= EVEN:
                break
        return min(tried, key=lambda each: each[0])[1]

    def _grown(self, links: Links, per_rank: int) -> tuple[float, Found]:
        """The largest load for 1 of the smallest, and who has what."""
        limit = int(self._size.sum()) // (self.num_ranks * per_rank)
        grown = grow(links, self._size, limit, rounds=self.how.rounds, seed=self.seed)
        sizes = sizes_of_chunks(self.graph, grown.of_cell, len(grown.size))
        load = loads_of_chunks(sizes, self.num_ranks, self.work)
        of_cells = whole_numbers(self._size * (load / grown.size)[grown.of_cell])
        owner = self._assigned(replace(grown, size=whole_numbers(load)), links, of_cells)
        if self.how.refine and self.num_ranks > 1:
            owner = self._refined(links, of_cells, owner)
        has = np.bincount(owner, of_cells, self.num_ranks)
        return float(has.max() / max(has.min(), 1)), (owner, with_owners(grown.of_cell, owner, self.num_ranks))

    def _assigned(self, grown: Grown, links: Links, load: Sums) -> Labels:
        if self.num_ranks == 1:
            return np.zeros(len(load), np.int32)
        if self.how.assign == "cells":
            return by_metis(links, load, self.num_ranks, self.seed)
        if self.how.assign == "score":
            return by_score(grown.links, grown.size, self.num_ranks)[grown.of_cell]
        return by_metis(grown.links, grown.size, self.num_ranks, self.seed)[grown.of_cell]

    def _refined(self, links: Links, load: Sums, owner: Labels) -> Labels:
        """Cells that have moved, unless that costs more: a cell counts what its links weigh, not who else reads it."""
        room = int(load.sum() / self.num_ranks * ROOM)
        moved, _ = propagate(links, load, room, rounds=self.how.rounds, seed=self.seed, label=owner)
        return min((moved, owner), key=self._bytes)
