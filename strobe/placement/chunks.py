"""Placement of chunks of cells that are connected along edges and in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.placement.algorithms.chunk_graph import nodes_of_cells
from strobe.placement.algorithms.chunking import Chunking
from strobe.placement.algorithms.metis import relabel_to_match
from strobe.placement.base import Partition, Placement, split_at_windows
from strobe.placement.model_costs import ModelCosts
from strobe.strategy import Fact


@dataclass(frozen=True, kw_only=True)
class Chunks(Placement):
    """Chunks of cells connected along edges and in time, assigned to ranks so that few bytes are sent.

    Chunks grow by label propagation, with links weighted by the bytes the model sends along edges and sequences, up to
    1 / ``per_rank`` of a rank's load. Half and twice as many chunks are tried, too; the fewest bytes win. Ranks are
    even in every window.

    Args:
        per_rank: chunks per rank.
        assign: by ``metis`` on the graph of chunks, by ``score`` (Chen et al. 2023, Algorithm 1), or by METIS on
            ``cells``.
        refine: afterwards move single cells to the rank with which they share most bytes.
        rounds: maximum rounds of label propagation.
        loads: ``counted`` cells and arcs, or seconds ``predicted`` from chunks measured on this machine.
    """

    name: ClassVar[str] = "chunks"
    needs_model_costs: ClassVar[bool] = True
    per_rank: int = 16
    assign: Literal["metis", "score", "cells"] = "metis"
    refine: bool = True
    rounds: int = 6
    loads: Literal["counted", "predicted"] = "counted"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.per_rank < 1:
            raise OptionError(f"per_rank of {self.name} must be at least 1, not {self.per_rank}")
        if self.rounds < 1:
            raise OptionError(f"rounds of {self.name} must be at least 1, not {self.rounds}")

    @property
    def needs_measured_loads(self) -> bool:
        return self.loads == "predicted"

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("chunks",)

    def place(
        self,
        graph: DynamicGraph,
        windows: Sequence[range],
        num_ranks: int,
        *,
        seed: int = 0,
        costs: ModelCosts | None = None,
    ) -> Partition:
        costs = ModelCosts() if costs is None else costs
        cell_owner, cell_chunk = np.zeros(graph.num_cells, np.int16), np.zeros(graph.num_cells, np.int32)
        last = np.full(graph.num_nodes, -1, np.int16)
        first = 0
        for span in split_at_windows(windows, len(graph)):
            part, cells = graph[span.start : span.stop], slice(*graph.cell_ptr[[span.start, span.stop]].tolist())
            if cells.start == cells.stop:
                continue
            nodes = nodes_of_cells(part)
            owner, chunk = Chunking(self, part, num_ranks, seed, costs).assign()
            cell_owner[cells], cell_chunk[cells] = relabel_to_match(owner, last[nodes], num_ranks), chunk + first
            last[nodes] = cell_owner[cells]  # the last cell of each node wins
            first += int(chunk.max()) + 1
        return replace(Partition.by_cell(num_ranks, cell_owner, graph), cell_chunk=cell_chunk)
