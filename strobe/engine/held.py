"""What one rank holds of the snapshots of a window: who reads whom, who owns what, and rows of its own cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from strobe.comm import Comm
from strobe.comm.base import Arrival
from strobe.exchange.fetch import asked_of, sent_to
from strobe.ops.csr import IntArray
from strobe.ops.sampling import Sample
from strobe.view.sampled import Topology

if TYPE_CHECKING:
    from strobe.engine.job import Job


class _Snapshot(NamedTuple):
    topology: Topology
    owner: IntArray  # [n]
    own: IntArray  # [n] which of the rank's rows each cell is, of cells that it has
    first: int  # the number of its first cell


@dataclass(frozen=True, eq=False)
class Fetched:
    """Rows of features that this rank has, and those on their way."""

    rows: Tensor  # [C, F], filled where they are
    missing: IntArray  # rows that arrive, in order of sender
    arrivals: Sequence[Arrival]

    def wait(self) -> Tensor:
        """All of them."""
        if self.arrivals:
            self.rows[torch.from_numpy(self.missing)] = torch.cat([arrival.wait() for arrival in self.arrivals])
        return self.rows


class Held:
    """The window slides: snapshots that it leaves are let go of. A rank keeps features of its own cells alone."""

    def __init__(self, job: Job) -> None:
        self._comm: Comm = job.comm
        self._dtype = job.settings.dtype
        self._kept = job.plan.store.rows()
        self._snapshots: dict[int, _Snapshot] = {}

    def __getitem__(self, t: int) -> Topology:
        return self._snapshots[t].topology

    def owners(self, t: int) -> IntArray:
        """The owner of every cell of a snapshot, [n]."""
        return self._snapshots[t].owner

    def slide(self, job: Job, times: range) -> None:
        """On to the snapshots of another window. One that begins earlier than the last is read anew."""
        if any(t >= times.stop or (t < times.start and times.start not in self._snapshots) for t in self._snapshots):
            self._snapshots, self._kept = {}, job.plan.store.rows()
        while self._snapshots and min(self._snapshots) < times.start:
            del self._snapshots[self._kept.drop()]
        for t in times:
            if t not in self._snapshots:
                self._add(job, t)

    def _add(self, job: Job, t: int) -> None:
        graph, placed = job.problem.graph, job.sharing.placed
        snapshot = graph[t]
        owner: IntArray = np.zeros(snapshot.num_nodes, np.int16)
        if job.sharing.is_shared and placed is not None:
            owner = placed.owners(graph, t)
        mine = owner == self._comm.rank
        own = np.cumsum(mine, dtype=np.int32) - 1
        x = np.asarray(snapshot.x)[mine].astype(torch.empty(0, dtype=self._dtype).numpy().dtype, copy=False)
        self._comm.ledger.count(rows_loaded=len(x))
        self._kept.add(t, snapshot.nodes[mine], x)
        self._snapshots[t] = _Snapshot(Topology(snapshot), owner, own, int(graph.cell_ptr[t]))

    def fetch(self, times: range, drawn: Sequence[Sample], width: int) -> Fetched:
        """Features of the cells that were drawn in each snapshot: own rows at once, others on their way. All ranks
        fetch."""
        held = [self._snapshots[t] for t in times]
        numbers = np.concatenate(
            [s.first + each.position.astype(np.int64) for s, each in zip(held, drawn, strict=True)]
        )
        owner = np.concatenate([s.owner[each.position] for s, each in zip(held, drawn, strict=True)])
        rows = torch.empty(len(numbers), width, dtype=self._dtype)
        mine = np.flatnonzero(owner == self._comm.rank)
        rows[torch.from_numpy(mine)] = self._rows(numbers[mine], width)
        if self._comm.num_ranks == 1:
            return Fetched(rows, mine[:0], [])
        places = [np.flatnonzero(owner == rank) if rank != self._comm.rank else mine[:0] for rank in self._ranks]
        wanted = [numbers[at] for at in places]
        sends = [self._rows(each, width) for each in asked_of(self._comm, wanted)]
        arrivals = sent_to(self._comm, sends, [len(each) for each in wanted], rows)
        return Fetched(rows, np.concatenate(places), arrivals)

    @property
    def _ranks(self) -> range:
        return range(self._comm.num_ranks)

    def _rows(self, numbers: IntArray, width: int) -> Tensor:
        """Rows of own cells, by their numbers, which come snapshot by snapshot, in any order within each."""
        found = []
        for t, snapshot in self._snapshots.items():
            size = len(snapshot.owner)
            first, last = np.searchsorted(numbers, (snapshot.first, snapshot.first + size))
            if first < last:
                found.append(self._kept.pick(t, snapshot.own[numbers[first:last] - snapshot.first]))
        return torch.from_numpy(np.concatenate(found)) if found else torch.empty(0, width, dtype=self._dtype)
