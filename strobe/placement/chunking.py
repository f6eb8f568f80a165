"""How a stretch of time becomes chunks, and chunks become ranks'."""

from __future__ import annotations

from collections.abc import Iterable
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

GRAINS = (0.5, 1.0, 2.0)
"""How many times as many chunks a rank gets as was said: few large ones cut little, many small ones are even. Which
cuts the fewest bytes is not known before."""

FINEST = 4.0
"""What is tried last, where none is even."""

ROOM = 1.02
"""While single cells move to where most of their bytes are, no rank grows beyond this share of the mean load."""

CUTS = (1 / 16, 0.25, 1.0, 4.0)
"""What cutting a sequence is taken to cost where it should be whole, in units of its cost at a place drawn at random.
Which is right depends on where cuts end up, so all are tried."""

Found = tuple[Labels, Labels]
"""Owner and chunk of every cell."""


@dataclass(frozen=True, eq=False)
class Tried:
    """One way to share out: the largest load for 1 of the smallest, and who has what."""

    uneven: float
    found: Found


@dataclass(frozen=True, eq=False)
class Chunking:
    """A stretch of time that is shared out among ranks, the way a placement says."""

    how: Chunks
    graph: DynamicGraph
    num_ranks: int
    seed: int
    work: Work

    def shared_out(self) -> Found:
        """The way that cuts the fewest bytes of those that are even."""
        links, work = self._links, self.work
        if self.num_ranks == 1:
            return self._tried(links, 1.0).found
        if not work.cell_bytes:
            return self._best(self._tried(links, grain) for grain in GRAINS).found
        a_cut = work.cell_bytes * typical_length(self.graph) / 4  # half the shorter side, on average
        chains = [replace(links, chain=work.state_bytes + scale * a_cut) for scale in CUTS]
        tried = [self._tried(each, 1.0) for each in chains]
        return self._best([*tried, self._whole_sequences(tried[-1].found[1])]).found

    def _best(self, tried: Iterable[Tried]) -> Tried:
        found = list(tried)
        if not any(each.uneven <= EVEN for each in found):
            found.append(self._tried(self._links, FINEST))
        even = [each for each in found if each.uneven <= EVEN]
        return (
            min(even, key=lambda each: self._bytes(each.found[0])) if even else min(found, key=lambda each: each.uneven)
        )

    @cached_property
    def _links(self) -> Links:
        return cell_links(self.graph, self.work.arc_bytes, self.work.state_bytes)

    @cached_property
    def _size(self) -> Sums:
        return counted_cells(self.graph)

    def _bytes(self, owner: Labels) -> float:
        return bytes_cut(self.graph, self._links, owner, self.num_ranks, self.work)

    def _whole_sequences(self, chunk: Labels) -> Tried:
        of_node = Metis().place(self.graph, (), self.num_ranks, seed=self.seed).of_node
        owner = of_node[nodes_of_cells(self.graph)].astype(np.int32)
        return self._shared(owner, chunk, self._size)

    def _tried(self, links: Links, grain: float) -> Tried:
        """Chunks of one size, for one way to weigh links."""
        limit = int(self._size.sum() / (self.num_ranks * self.how.per_rank * grain))
        grown = grow(links, self._size, limit, rounds=self.how.rounds, seed=self.seed)
        sizes = sizes_of_chunks(self.graph, grown.of_cell, len(grown.size))
        load = loads_of_chunks(sizes, self.num_ranks, self.work)
        of_cells = whole_numbers(self._size * (load / grown.size)[grown.of_cell])
        owner = self._assigned(replace(grown, size=whole_numbers(load)), links, of_cells)
        if self.how.refine and self.num_ranks > 1:
            owner = self._refined(links, of_cells, owner)
        return self._shared(owner, grown.of_cell, of_cells)

    def _shared(self, owner: Labels, chunk: Labels, load: Sums) -> Tried:
        has = np.bincount(owner, load, self.num_ranks)
        return Tried(float(has.max() / max(has.min(), 1)), (owner, with_owners(chunk, owner, self.num_ranks)))

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
