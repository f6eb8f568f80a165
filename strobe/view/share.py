"""What one rank has of a window: its cells, the neighbours it hears and tells, and how its sequences go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from strobe.comm import Comm
from strobe.comm.rows import Route
from strobe.exchange import Exchange, TimeEncoder, TimeExchange, Timing
from strobe.exchange.delivery import Courier
from strobe.exchange.halo import Arcs, Neighbours, neighbours
from strobe.exchange.legs import NOBODY
from strobe.exchange.none import Staying
from strobe.graph import DynamicGraph
from strobe.ops.csr import IntArray
from strobe.ops.sequences import Sequences
from strobe.placement import Placed

Reads = Literal["in", "out"]
"""Whether a cell reads along the arcs that reach it or along those that leave it."""

Stage = Literal["structure", "time"]

Homes = npt.NDArray[np.int16]


@dataclass(frozen=True, eq=False)
class Owners(Sequence[IntArray]):
    """The owner of every cell of each snapshot of a window, made when asked for; NOBODY's take no part."""

    graph: DynamicGraph
    placed: Placed
    times: range
    chosen: Sequence[npt.NDArray[np.bool_]] | None = None

    def __len__(self) -> int:
        return len(self.times)

    @overload
    def __getitem__(self, key: int) -> IntArray: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[IntArray]: ...
    def __getitem__(self, key: int | slice) -> IntArray | Sequence[IntArray]:
        if isinstance(key, slice):
            chosen = None if self.chosen is None else self.chosen[key]
            return Owners(self.graph, self.placed, self.times[key], chosen)
        owners = self.placed.owners(self.graph, self.times[key])
        return owners if self.chosen is None else np.where(self.chosen[key], owners, NOBODY)


@dataclass(frozen=True, eq=False)
class Handover:
    """States of nodes whose cell before this snapshot was elsewhere: node ids to send, own rows that get an answer."""

    route: Route
    places: Tensor


@dataclass(frozen=True, eq=False)
class Share:
    """One rank's share of snapshots ``owners.times`` of a graph; of a window, or ``within`` one."""

    comm: Comm
    exchange: Exchange
    owners: Owners
    home: Homes  # [N], where each node's state is before the window
    device: torch.device
    within: Share | None = None

    @property
    def graph(self) -> DynamicGraph:
        return self.owners.graph

    @property
    def placed(self) -> Placed:
        return self.owners.placed

    @property
    def of_sequence(self) -> IntArray:
        """The one owner that each whole sequence would have."""
        assert self.placed.of_sequence is not None
        return self.placed.of_sequence

    @cached_property
    def own(self) -> list[IntArray]:
        """Positions of the rank's cells in each snapshot, ascending."""
        return [np.flatnonzero(owner == self.comm.rank) for owner in self.owners]

    @cached_property
    def num_cells(self) -> IntArray:
        """Cells of each snapshot on all ranks together."""
        return np.array([int((owner >= 0).sum()) for owner in self.owners], np.int64)

    @cached_property
    def splits_snapshots(self) -> bool:
        return self.comm.num_ranks > 1 and not self.placed.whole_snapshots

    @property
    def has_whole_snapshots(self) -> bool:
        """Whether a snapshot is the rank's as a whole or not at all."""
        return not self.splits_snapshots and self.owners.chosen is None

    def neighbours(self, reads: Reads) -> Neighbours:
        """Whom the rank hears and tells in a sparse product."""
        if self.splits_snapshots:
            return neighbours(self.comm.rank, self.owners, self._arcs(reads), self.own, self.device)
        nobody = [np.empty(0, np.int64)] * len(self.own)
        return Neighbours(Route({}, {}), nobody, nobody)

    def asked_neighbours(self, arcs: Sequence[Arcs]) -> Neighbours:
        """Whom the rank hears and tells about pairs that are asked, as (cell that asks, cell it is asked with)."""
        return neighbours(self.comm.rank, self.owners, arcs, self.own, self.device)

    @cached_property
    def couriers(self) -> dict[Stage, Courier]:
        """Who brings rows of others to each stage. A snapshot has those of its window: a pass steps through all."""
        if self.within is not None:
            return self.within.couriers
        return {"structure": self.exchange.structure.courier(self.comm), "time": self.exchange.time.courier(self.comm)}

    @property
    def time_courier(self) -> Courier:
        return self.couriers["time"]

    def timing(self, encoder: TimeEncoder) -> Timing:
        """How a time stage runs; the same for all encoders of a kind."""
        if self._stays:
            return self._staying
        choice = self.exchange.time.fitting(encoder)
        if choice not in self._timings:
            self._timings[choice] = choice.start(self)
        return self._timings[choice]

    @property
    def state_sequences(self) -> Sequences:
        """Whose cells the rank has, with a slot for every node whose state it may hold."""
        return self._staying.sequences if self._stays else self._all_slots

    def handovers(self) -> list[Handover | None]:
        """For each snapshot, states that must move before it; None where nothing does."""
        if self._stays:
            return [None] * len(self.own)
        home, found = self.home.copy(), []
        for nodes, owners, own in zip(self.nodes, self.owners, self.own, strict=True):
            found.append(self._handover(nodes, owners, home[nodes], own))
            home[nodes[owners >= 0]] = owners[owners >= 0]
        return found

    def single(self, t: int, home: Homes) -> Share:
        """The share of one snapshot."""
        owners = self.owners[t : t + 1]
        return Share(self.comm, self.exchange, owners, home, self.device, self)  # type: ignore[arg-type]

    @property
    def _stays(self) -> bool:
        return self.comm.num_ranks == 1 or self.placed.whole_sequences

    @cached_property
    def _staying(self) -> Staying:
        of_sequence = self.placed.of_sequence
        held = np.ones(self.graph.num_nodes, bool) if of_sequence is None else of_sequence == self.comm.rank
        slots = np.cumsum(held) - 1
        return Staying(Sequences.of([slots[nodes] for nodes in self._own_nodes], int(held.sum()), self.device))

    @cached_property
    def _timings(self) -> dict[TimeExchange, Timing]:
        return {}

    @cached_property
    def _all_slots(self) -> Sequences:
        return Sequences.of(self._own_nodes, self.graph.num_nodes, self.device)

    @property
    def _own_nodes(self) -> list[IntArray]:
        return [nodes[own] for nodes, own in zip(self.nodes, self.own, strict=True)]

    @property
    def nodes(self) -> list[IntArray]:
        """Present nodes of each snapshot, whoever has their cells."""
        return [self.graph[t].nodes for t in self.owners.times]

    def _arcs(self, reads: Reads) -> Iterator[Arcs]:
        """Arcs of each snapshot in which the rank has cells; of the others nothing is read."""
        nothing = np.empty(0, np.int64)
        for t, own in zip(self.owners.times, self.own, strict=True):
            read, reader = self.graph[t].arcs() if len(own) else (nothing, nothing)
            yield (reader, read) if reads == "in" else (read, reader)

    def _handover(self, nodes: IntArray, owners: IntArray, before: IntArray, own: IntArray) -> Handover | None:
        rank = self.comm.rank
        leaves = (before == rank) & (owners != rank) & (owners >= 0)
        comes = before[own]
        elsewhere = (comes != rank) & (comes != NOBODY)
        if not leaves.any() and not elsewhere.any():
            return None
        gone = {int(to): nodes[leaves & (owners == to)].astype(np.int64) for to in set(owners[leaves].tolist())}
        send = {to: torch.from_numpy(rows).to(self.device) for to, rows in gone.items()}
        places = [np.flatnonzero(comes == source) for source in sorted(set(comes[elsewhere].tolist()))]
        receive = {int(comes[rows[0]]): len(rows) for rows in places}
        at = np.concatenate([np.empty(0, np.int64), *places])
        return Handover(Route(send, receive), torch.from_numpy(at).to(self.device))
