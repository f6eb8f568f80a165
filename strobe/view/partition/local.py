"""The part of a window that one rank owns: its cells, halo, row exchanges and time stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from strobe.comm import NO_RANK, Comm
from strobe.comm.rows import Route
from strobe.exchange import Exchange, TimeEncoder, TimeExchange, TimeStage
from strobe.exchange.halo import Arcs, HaloCells, find_halo
from strobe.exchange.none import LocalTimeStage
from strobe.exchange.transfer import RowExchange
from strobe.graph import DynamicGraph
from strobe.ops.sparse.csr import IntArray
from strobe.ops.time.sequences import Sequences
from strobe.placement import Partition

Reads = Literal["in", "out"]
"""Whether cells read along incoming or outgoing arcs."""

StageName = Literal["structure", "time"]

Homes = npt.NDArray[np.int16]


@dataclass(frozen=True, eq=False)
class Owners(Sequence[IntArray]):
    """Owners of all cells of each snapshot of a window, computed on access; NO_RANK for cells that are left out."""

    graph: DynamicGraph
    partition: Partition
    times: range
    cell_mask: Sequence[npt.NDArray[np.bool_]] | None = None

    def __len__(self) -> int:
        return len(self.times)

    @overload
    def __getitem__(self, key: int) -> IntArray: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[IntArray]: ...
    def __getitem__(self, key: int | slice) -> IntArray | Sequence[IntArray]:
        if isinstance(key, slice):
            mask = None if self.cell_mask is None else self.cell_mask[key]
            return Owners(self.graph, self.partition, self.times[key], mask)
        owners = self.partition.owners(self.graph, self.times[key])
        return owners if self.cell_mask is None else np.where(self.cell_mask[key], owners, NO_RANK)


@dataclass(frozen=True, eq=False)
class Handover:
    """States to move before a snapshot: node ids to send by rank, and the rows that received states replace."""

    route: Route
    places: Tensor


@dataclass(frozen=True, eq=False)
class LocalPartition:
    """One rank's part of snapshots ``owners.times`` of a graph; ``parent`` is the window of a single snapshot."""

    comm: Comm
    exchange: Exchange
    owners: Owners
    home: Homes  # [N], rank of each node's state before the window
    device: torch.device
    parent: LocalPartition | None = None

    @property
    def graph(self) -> DynamicGraph:
        return self.owners.graph

    @property
    def partition(self) -> Partition:
        return self.owners.partition

    @property
    def sequence_owner(self) -> IntArray:
        """Owner of each sequence as a whole, [N]."""
        assert self.partition.sequence_owner is not None
        return self.partition.sequence_owner

    @cached_property
    def own(self) -> list[IntArray]:
        """Positions of the rank's cells in each snapshot, ascending."""
        return [np.flatnonzero(owner == self.comm.rank) for owner in self.owners]

    @cached_property
    def snapshot_sizes(self) -> IntArray:
        """Cells of each snapshot on all ranks together."""
        return np.array([int((owner >= 0).sum()) for owner in self.owners], np.int64)

    @cached_property
    def snapshot_counts(self) -> Tensor:
        """``snapshot_sizes`` on the device, [T, 1]."""
        return torch.from_numpy(self.snapshot_sizes).to(self.device)[:, None]

    @cached_property
    def splits_snapshots(self) -> bool:
        return self.comm.num_ranks > 1 and not self.partition.whole_snapshots

    @property
    def has_whole_snapshots(self) -> bool:
        """Whether every snapshot is entirely local or entirely remote."""
        return not self.splits_snapshots and self.owners.cell_mask is None

    def halo_cells(self, reads: Reads) -> HaloCells:
        """The halo of a sparse product."""
        if self.splits_snapshots:
            return find_halo(self.comm.rank, self.owners, self._arcs(reads), self.own, self.device)
        none = [np.empty(0, np.int64)] * len(self.own)
        return HaloCells(Route({}, {}), none, none)

    @cached_property
    def row_exchanges(self) -> dict[StageName, RowExchange]:
        """The row exchange of each stage. Single snapshots share those of their window."""
        if self.parent is not None:
            return self.parent.row_exchanges
        return {
            "structure": self.exchange.structure.make_row_exchange(self.comm),
            "time": self.exchange.time.make_row_exchange(self.comm),
        }

    @property
    def time_row_exchange(self) -> RowExchange:
        return self.row_exchanges["time"]

    def time_stage(self, encoder: TimeEncoder) -> TimeStage:
        """The time stage for an encoder, cached by the strategy that handles it."""
        if self._is_local:
            return self._local_stage
        strategy = self.exchange.time.for_encoder(encoder)
        if strategy not in self._time_stages:
            self._time_stages[strategy] = strategy.start(self)
        return self._time_stages[strategy]

    @property
    def state_sequences(self) -> Sequences:
        """The rank's sequences, with a slot for every node whose state it may store."""
        return self._local_stage.sequences if self._is_local else self._all_slots

    @property
    def state_rank(self) -> IntArray:
        """The rank that has each node's saved state before the window, [N]; NO_RANK if no rank has one."""
        if self.comm.num_ranks == 1:
            return np.zeros(self.graph.num_nodes, np.int16)
        return self.sequence_owner if self.partition.whole_sequences else self.home

    def computing_rank(self, k: int) -> IntArray:
        """The rank that computes each cell of the k-th snapshot; NO_RANK for cells that are left out."""
        return self.owners[k]

    def node_slots(self, nodes: IntArray) -> IntArray:
        """The slots of this rank's nodes among ``state_sequences``."""
        return self._slots[nodes] if self._is_local else nodes

    def handovers(self) -> list[Handover | None]:
        """For each snapshot, the states to move before it; None if there are none."""
        if self._is_local:
            return [None] * len(self.own)
        home, handovers = self.home.copy(), []
        for nodes, owners, own in zip(self.nodes, self.owners, self.own, strict=True):
            handovers.append(self._find_handover(nodes, owners, home[nodes], own))
            home[nodes[owners >= 0]] = owners[owners >= 0]
        return handovers

    def single(self, t: int, home: Homes) -> LocalPartition:
        """The part of one snapshot."""
        owners = self.owners[t : t + 1]
        return LocalPartition(self.comm, self.exchange, owners, home, self.device, self)  # type: ignore[arg-type]

    @property
    def _is_local(self) -> bool:
        return self.comm.num_ranks == 1 or self.partition.whole_sequences

    @cached_property
    def _local_stage(self) -> LocalTimeStage:
        num_slots = int(self._slots[-1]) + 1 if len(self._slots) else 0
        slots = [self._slots[nodes] for nodes in self._own_nodes]
        return LocalTimeStage(Sequences.of(slots, num_slots, self.device))

    @cached_property
    def _slots(self) -> IntArray:
        """The slot of every node, [N], if sequences are whole; of use for nodes of this rank only."""
        sequence_owner = self.partition.sequence_owner
        local = np.ones(self.graph.num_nodes, bool) if sequence_owner is None else sequence_owner == self.comm.rank
        return np.cumsum(local) - 1

    @cached_property
    def _time_stages(self) -> dict[TimeExchange, TimeStage]:
        return {}

    @cached_property
    def _all_slots(self) -> Sequences:
        return Sequences.of(self._own_nodes, self.graph.num_nodes, self.device)

    @property
    def _own_nodes(self) -> list[IntArray]:
        return [nodes[own] for nodes, own in zip(self.nodes, self.own, strict=True)]

    @property
    def nodes(self) -> list[IntArray]:
        """Present nodes of each snapshot, local and remote."""
        return [self.graph[t].nodes for t in self.owners.times]

    def _arcs(self, reads: Reads) -> Iterator[Arcs]:
        """Arcs of each snapshot; none for snapshots without local cells, which are not read."""
        empty = np.empty(0, np.int64)
        for t, own in zip(self.owners.times, self.own, strict=True):
            read, reader = self.graph[t].arcs() if len(own) else (empty, empty)
            yield (reader, read) if reads == "in" else (read, reader)

    def _find_handover(self, nodes: IntArray, owners: IntArray, before: IntArray, own: IntArray) -> Handover | None:
        rank = self.comm.rank
        leaves = (before == rank) & (owners != rank) & (owners >= 0)
        sources = before[own]
        remote = (sources != rank) & (sources != NO_RANK)
        if not leaves.any() and not remote.any():
            return None
        sent = {int(to): nodes[leaves & (owners == to)].astype(np.int64) for to in set(owners[leaves].tolist())}
        send = {to: torch.from_numpy(rows).to(self.device) for to, rows in sent.items()}
        places = [np.flatnonzero(sources == source) for source in sorted(set(sources[remote].tolist()))]
        receive = {int(sources[rows[0]]): len(rows) for rows in places}
        at = np.concatenate([np.empty(0, np.int64), *places])
        return Handover(Route(send, receive), torch.from_numpy(at).to(self.device))
