"""Graphs whose cells somebody owns, drawn at random, and views of one rank's share of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from hypothesis import Phase, settings
from hypothesis import strategies as st

from strobe.comm import NO_RANK, Comm, SingleRankComm
from strobe.exchange import Exchange, Halo, Relay
from strobe.graph import DynamicGraph
from strobe.placement import Partition
from strobe.view import LocalPartition, Owners, WindowData
from tests.support.graphs import PlainGraph, dynamic_graphs
from tests.support.model_cases import with_inputs

CPU = torch.device("cpu")
EXCHANGE = Exchange(structure=Halo(), time=Relay(pipeline_groups=2))


def among_threads(max_examples: int) -> settings:
    """For ranks as threads: one that hangs does so until its deadline, so examples that fail are not made smaller."""
    return settings(deadline=None, max_examples=max_examples, phases=(Phase.explicit, Phase.reuse, Phase.generate))


@dataclass(frozen=True)
class Owned:
    """A graph and who owns its cells; ``chosen`` says which take part (None: all)."""

    plain: PlainGraph
    graph: DynamicGraph
    placed: Partition
    chosen: list[np.ndarray[Any, np.dtype[np.bool_]]] | None = None

    @property
    def num_ranks(self) -> int:
        return self.placed.num_ranks

    def owner(self, t: int) -> list[int]:
        """The owner of every cell of a snapshot; NO_RANK if the cell is left out."""
        owners = self.placed.owners(self.graph, t).tolist()
        return [NO_RANK if self.chosen and not self.chosen[t][k] else int(who) for k, who in enumerate(owners)]

    def own(self, rank: int) -> list[tuple[int, int]]:
        """(t, position) of a rank's cells, t-major."""
        return [(t, k) for t in range(len(self.graph)) for k, who in enumerate(self.owner(t)) if who == rank]

    def numbers(self, rank: int) -> list[int]:
        """The numbers of a rank's cells among all of the graph."""
        return [int(self.graph.cell_ptr[t]) + k for t, k in self.own(rank)]

    def share(self, comm: Comm, exchange: Exchange = EXCHANGE, home: Any = None) -> LocalPartition:
        owners = Owners(self.graph, self.placed, range(len(self.graph)), self.chosen)
        home = np.full(self.graph.num_nodes, NO_RANK, np.int16) if home is None else home
        return LocalPartition(comm, exchange, owners, home, CPU)

    def cells(self, comm: Comm) -> WindowData:
        return WindowData(self.graph, local_partition=self.share(comm), dtype=torch.float64)


def one_of(rank: int, num_ranks: int) -> Comm:
    """A rank whose others are not there: it can be asked, but not talk."""
    comm = SingleRankComm()
    comm.rank, comm.num_ranks = rank, num_ranks
    return comm


@st.composite
def owned_graphs(draw: st.DrawFn, /, *, min_ranks: int = 2, some: bool = False, **options: Any) -> Owned:
    """Owners by cell, by node or by snapshot; with ``some``, perhaps not all cells take part."""
    plain = draw(dynamic_graphs(carried=False, **options))
    plain = plain if plain.weighted else _unweighted(plain)
    graph = with_inputs(plain.build())
    num_ranks = draw(st.integers(min_ranks, 3))
    how = draw(st.sampled_from(["cell", "cell", "node", "snapshot"]))
    number = {"cell": graph.num_cells, "node": graph.num_nodes, "snapshot": len(graph)}[how]
    owners = np.array(draw(st.lists(st.integers(0, num_ranks - 1), min_size=number, max_size=number)), np.int16)
    if how == "cell":
        placed = Partition.by_cell(num_ranks, owners, graph)
    elif how == "node":
        placed = Partition.by_node(num_ranks, owners, len(graph))
    else:
        placed = Partition.by_snapshot(num_ranks, owners, graph.num_nodes)
    chosen = None
    if some and draw(st.booleans()):
        chosen = [
            np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool)
            for n in np.diff(graph.cell_ptr).tolist()
        ]
    return Owned(plain, graph, placed.with_sequence_owner(graph), chosen)


def _unweighted(plain: PlainGraph) -> PlainGraph:
    """The same with weights that say what the graph makes of having none."""
    shots = [replace(shot, edges=[(u, v, 1.0) for u, v, _ in shot.edges]) for shot in plain.snapshots]
    return replace(plain, snapshots=shots)
