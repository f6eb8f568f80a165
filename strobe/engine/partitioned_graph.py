"""Who has what: the cells of each window as this rank sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from strobe.comm import NO_RANK, Comm, SingleRankComm
from strobe.engine.example_cache import ByteBudget
from strobe.engine.inputs.cached_results import CachedResults, is_known_plan
from strobe.graph import DynamicGraph
from strobe.placement import ModelCosts, Partition
from strobe.plan import Plan
from strobe.view import LocalPartition, Owners, WindowData
from strobe.view.offload import OffloadedWindows

Mask = npt.NDArray[np.bool_]


class PartitionedGraph:
    """A graph among ranks. Without a placement this rank has it all, alone."""

    def __init__(
        self,
        graph: DynamicGraph,
        plan: Plan | None = None,
        comm: Comm | None = None,
        partition: Partition | None = None,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.graph = graph
        self.plan = Plan() if plan is None else plan
        self.comm = SingleRankComm() if comm is None else comm
        self.partition = partition
        self.device, self.dtype = torch.device(device), dtype
        self.offloader: OffloadedWindows | None = None
        self.example_budget = ByteBudget.of_device(self.device)
        self._state_owner = np.full(graph.num_nodes, NO_RANK, np.int16)
        self._until = 0

    @property
    def is_partitioned(self) -> bool:
        """Whether ranks have different cells of the same batches."""
        return self.partition is not None and self.partition.num_ranks > 1 and not self.partition.replicated

    def own_nodes(self) -> Mask:
        """Whether each node is this rank's, where nodes are placed whole, [N]."""
        if not self.is_partitioned:
            return np.ones(self.graph.num_nodes, bool)
        assert self.partition is not None
        assert self.partition.whole_sequences
        mine: Mask = self.partition.node_owner == self.comm.rank
        return mine

    def window_data(
        self, times: range, *, masks: Sequence[Mask] | None = None, resets_state: bool = False
    ) -> WindowData:
        """This rank's cells of some snapshots. ``masks``: cells that take part; ``resets_state``: no state is carried
        in."""
        data = self._window_data(times, masks, resets_state)
        if self.partition is not None and self.partition.cell_chunk is not None:
            self.plan.batching.structure_stage(data, lambda: self._chunks(data, times), self.comm.ledger)
        return data

    def _window_data(self, times: range, masks: Sequence[Mask] | None, resets_state: bool) -> WindowData:
        part = self.graph[times.start : times.stop]
        if not self.is_partitioned and masks is None:
            return WindowData(part, dtype=self.dtype, device=self.device)
        placed = self.partition or Partition.by_node(1, np.zeros(self.graph.num_nodes, np.int16), len(self.graph))
        owners = Owners(self.graph, placed, times, masks)
        home = np.full_like(self._state_owner, NO_RANK) if resets_state else self._state_owner_at(times.start)
        share = LocalPartition(self.comm, self.plan.exchange, owners, home, self.device)
        return WindowData(part, local_partition=share, dtype=self.dtype, device=self.device)

    def _chunks(self, cells: WindowData, times: range) -> npt.NDArray[np.integer]:
        """The chunk of each of this rank's cells."""
        assert self.partition is not None
        assert self.partition.cell_chunk is not None
        ptr = self.graph.cell_ptr
        of_snapshots = [self.partition.cell_chunk[ptr[t] : ptr[t + 1]] for t in times]
        if cells.local_partition is not None:
            of_snapshots = [chunk[own] for chunk, own in zip(of_snapshots, cells.local_partition.own, strict=True)]
        return np.concatenate([np.empty(0, np.int32), *of_snapshots])

    def _state_owner_at(self, t: int) -> npt.NDArray[np.int16]:
        """Where each node's state is when snapshot t begins. Asked in order of time it looks at each snapshot once."""
        assert self.partition is not None
        if self.partition.whole_sequences:
            return self._state_owner  # no state moves
        if t < self._until:
            self._state_owner[:], self._until = NO_RANK, 0
        for before in range(self._until, t):
            self._state_owner[self.graph[before].nodes] = self.partition.owners(self.graph, before)
        self._until = t
        return self._state_owner.copy()


def partition_graph(
    graph: DynamicGraph,
    plan: Plan,
    comm: Comm,
    windows: Sequence[range],
    train: range,
    seed: int,
    work: Callable[[], ModelCosts] | None = None,
    results: CachedResults | None = None,
) -> Partition | None:
    """Compute the owner of every cell on rank 0 and broadcast it. One rank owns all, but may need chunks or loads.

    Where the steps of training depend on the placement (nodes are sampled by load, or left out chunk by chunk), it is
    computed from the training snapshots alone: later snapshots must not change what is trained. ``work`` makes what a
    placement needs to know of the model; only rank 0 calls it. ``results``: where a partition is found again.
    """
    batching = plan.batching
    shapes_steps = batching.depends_on_partition
    if comm.num_ranks == 1 and not batching.needs_partition:
        return None
    mine = None
    with comm.rank_0_alone("place"):
        if comm.rank == 0:
            part, together = graph, windows
            if shapes_steps:
                part = graph[train.start : train.stop]
                together = [window for window in windows if window.stop <= train.stop]
            known = None if work is None else work()

            def place() -> Partition:
                placed = plan.placement.place(part, together, comm.num_ranks, seed=seed, costs=known)
                return (placed.extend_to(len(graph)) if shapes_steps else placed).with_sequence_owner(graph)

            key = _partition_key(plan, [[each.start, each.stop, each.step] for each in together], known)
            if key is not None:
                key |= {"snapshots": len(part), "ranks": comm.num_ranks, "seed": seed}
            results = CachedResults() if results is None else results
            mine = results.partition(key, graph, comm.num_ranks, place)
    placed: Partition = comm.broadcast_object(mine, kind="placement")
    return placed


def _partition_key(plan: Plan, windows: list[list[int]], costs: ModelCosts | None) -> dict[str, Any] | None:
    """Identify a placement with its inputs; None where loads are measured, or a strategy is a user's own."""
    if plan.placement.needs_measured_loads or not is_known_plan(plan):
        return None
    known = None if costs is None else [costs.arc_bytes, costs.state_bytes, costs.cell_bytes, costs.hops]
    return {"placement": plan.placement.to_json(), "store": plan.store.to_json(), "windows": windows, "costs": known}


def khop_masks(graph: DynamicGraph, times: range, targets: npt.NDArray[np.integer], hops: int) -> list[Mask]:
    """Masks of the k-hop neighborhoods of nodes, per snapshot: cells read within ``hops`` sparse products, and their
    own."""
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
