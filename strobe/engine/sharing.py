"""Who has what: the cells of each window as this rank sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch

from strobe.comm import Alone, Comm
from strobe.engine.kept import Room
from strobe.exchange.legs import NOBODY
from strobe.graph import DynamicGraph
from strobe.placement import Placed, Work
from strobe.plan import Plan
from strobe.view import Cells, Owners, Share
from strobe.view.pieces import Fusing
from strobe.view.streamed import Streamed

Mask = npt.NDArray[np.bool_]


class Sharing:
    """A graph among ranks. Without a placement this rank has it all, alone."""

    def __init__(
        self,
        graph: DynamicGraph,
        plan: Plan | None = None,
        comm: Comm | None = None,
        placed: Placed | None = None,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.graph = graph
        self.plan = Plan() if plan is None else plan
        self.comm = Alone() if comm is None else comm
        self.placed = placed
        self.device, self.dtype = torch.device(device), dtype
        self.streamed: Streamed | None = None
        self.room = Room.on(self.device)
        self._home = np.full(graph.num_nodes, NOBODY, np.int16)
        self._until = 0

    @property
    def is_shared(self) -> bool:
        """Whether ranks have different cells of the same batches."""
        return self.placed is not None and self.placed.num_ranks > 1 and not self.placed.replicas

    def own(self) -> Mask:
        """Whether each node is this rank's, where nodes are placed whole, [N]."""
        if not self.is_shared:
            return np.ones(self.graph.num_nodes, bool)
        assert self.placed is not None
        assert self.placed.whole_sequences
        mine: Mask = self.placed.of_node == self.comm.rank
        return mine

    def cells(self, times: range, *, chosen: Sequence[Mask] | None = None, fresh: bool = False) -> Cells:
        """This rank's cells of some snapshots. ``chosen`` says which cells take part at all; ``fresh`` that no state
        comes from before."""
        cells = self._cells(times, chosen, fresh)
        budget = self.plan.batching.piece_bytes
        if budget is not None and self.placed is not None and self.placed.of_chunk is not None:
            cells.fusing = Fusing(cells, self._chunks(cells, times), budget, self.comm.ledger)
        return cells

    def _cells(self, times: range, chosen: Sequence[Mask] | None, fresh: bool) -> Cells:
        part = self.graph[times.start : times.stop]
        if not self.is_shared and chosen is None:
            return Cells(part, dtype=self.dtype, device=self.device)
        placed = self.placed or Placed.by_node(1, np.zeros(self.graph.num_nodes, np.int16), len(self.graph))
        owners = Owners(self.graph, placed, times, chosen)
        home = np.full_like(self._home, NOBODY) if fresh else self._home_at(times.start)
        share = Share(self.comm, self.plan.exchange, owners, home, self.device)
        return Cells(part, share=share, dtype=self.dtype, device=self.device)

    def _chunks(self, cells: Cells, times: range) -> npt.NDArray[np.integer]:
        """The chunk of each of this rank's cells."""
        assert self.placed is not None
        assert self.placed.of_chunk is not None
        ptr = self.graph.cell_ptr
        of_snapshots = [self.placed.of_chunk[ptr[t] : ptr[t + 1]] for t in times]
        if cells.share is not None:
            of_snapshots = [chunk[own] for chunk, own in zip(of_snapshots, cells.share.own, strict=True)]
        return np.concatenate([np.empty(0, np.int32), *of_snapshots])

    def _home_at(self, t: int) -> npt.NDArray[np.int16]:
        """Where each node's state is when snapshot t begins. Asked in order of time it looks at each snapshot once."""
        assert self.placed is not None
        if self.placed.whole_sequences:
            return self._home  # nothing moves: nobody looks
        if t < self._until:
            self._home[:], self._until = NOBODY, 0
        for before in range(self._until, t):
            self._home[self.graph[before].nodes] = self.placed.owners(self.graph, before)
        self._until = t
        return self._home.copy()


def place(
    graph: DynamicGraph,
    plan: Plan,
    comm: Comm,
    windows: Sequence[range],
    train: range,
    seed: int,
    work: Callable[[], Work] | None = None,
) -> Placed | None:
    """Compute the owner of every cell on rank 0 and broadcast it. One rank owns all, but may need chunks or loads.

    Where the steps of training depend on the placement (nodes are sampled by load, or left out chunk by chunk), it is
    computed from the training snapshots alone: later snapshots must not change what is trained. ``work`` makes what a
    placement needs to know of the model; only rank 0 calls it.
    """
    batching = plan.batching
    decays = batching.decay is not None and not batching.decay.whole
    shapes_steps = batching.drawing is not None or decays
    if comm.num_ranks == 1 and batching.piece_bytes is None and not shapes_steps:
        return None
    mine = None
    with comm.rank_0_alone("place"):
        if comm.rank == 0:
            part, together = graph, windows
            if shapes_steps:
                part = graph[train.start : train.stop]
                together = [window for window in windows if window.stop <= train.stop]
            known = None if work is None else work()
            mine = plan.placement.place(part, together, comm.num_ranks, seed=seed, work=known)
            mine = (mine.extended_to(len(graph)) if shapes_steps else mine).with_sequences(graph)
    placed: Placed = comm.share(mine, kind="placement")
    return placed


def around(graph: DynamicGraph, times: range, targets: npt.NDArray[np.integer], hops: int) -> list[Mask]:
    """Which cells of each snapshot some nodes' cells read within so many sparse products, themselves included."""
    wanted = np.zeros(graph.num_nodes, bool)
    wanted[targets] = True
    found = []
    for t in times:
        snapshot = graph[t]
        inside = wanted[snapshot.nodes]
        read, reader = snapshot.arcs()
        for _ in range(hops):
            along = reader[inside[read]] if snapshot.directed else reader[:0]  # some models read along the edges, too
            inside[read[inside[reader]]] = True
            inside[along] = True
        found.append(inside)
    return found
