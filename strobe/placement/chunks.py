"""Cells in chunks that hang together along edges and in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.placement.base import Placed, Placement
from strobe.placement.staying import renamed
from strobe.placement.stretches import stretches
from strobe.placement.work import Work
from strobe.strategy import Fact


@dataclass(frozen=True, kw_only=True)
class Chunks(Placement):
    """Cells in chunks that hang together along edges and in time, shared out such that few bytes travel.

    Chunks grow by label propagation: a cell takes the label that most bytes join it with, along its edges and in its
    sequence, as the model sends them, until a chunk has about 1 / ``per_rank`` of a rank's load; then chunks take
    labels from each other. They are assigned by ``metis`` on the graph of chunks, by ``score`` (Chen et al. 2023,
    Algorithm 1), or by METIS on the ``cells`` themselves; with ``refine`` single cells then move to the rank that they
    share most bytes with. Half and twice as many chunks are tried, too; the fewest bytes win. ``loads``: cells and
    arcs are counted, or the model's seconds are predicted from chunks that were measured on this machine. Ranks are
    even in every window.
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
    def wants_seconds(self) -> bool:
        return self.loads == "predicted"

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("chunks",)

    def place(
        self, graph: DynamicGraph, windows: Sequence[range], num_ranks: int, *, seed: int = 0, work: Work | None = None
    ) -> Placed:
        from strobe.placement.chunk_costs import nodes_of_cells  # numba takes its time to load
        from strobe.placement.chunking import Chunking

        work = Work() if work is None else work
        of_cell, of_chunk = np.zeros(graph.num_cells, np.int16), np.zeros(graph.num_cells, np.int32)
        last = np.full(graph.num_nodes, -1, np.int16)
        first = 0
        for span in stretches(windows, len(graph)):
            part, here = graph[span.start : span.stop], slice(*graph.cell_ptr[[span.start, span.stop]].tolist())
            if here.start == here.stop:
                continue
            nodes = nodes_of_cells(part)
            owner, chunk = Chunking(self, part, num_ranks, seed, work).shared_out()
            of_cell[here], of_chunk[here] = renamed(owner, last[nodes], num_ranks), chunk + first
            last[nodes] = of_cell[here]  # of a node's cells the last one counts
            first += int(chunk.max()) + 1
        return replace(Placed.by_cell(num_ranks, of_cell, graph), of_chunk=of_chunk)
