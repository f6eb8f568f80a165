"""Partitions of snapshots as they arrive: rank 0 places, all ranks learn the owners."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from strobe.comm import Comm
from strobe.errors import OptionError
from strobe.graph import DynamicGraph, Snapshot
from strobe.ops.sparse.csr import IntArray
from strobe.placement import Partition
from strobe.placement.streaming import StreamingPartitioner, StreamingPlacement, grow_to
from strobe.plan import Plan


@dataclass(frozen=True, eq=False)
class RecentPartition(Partition):
    """Owners of the cells of the last snapshots alone. A sequence is its newest cell's owner's."""

    recent_owners: Mapping[int, IntArray] = field(default_factory=dict)

    def owners(self, graph: DynamicGraph, t: int) -> IntArray:
        del graph
        return self.recent_owners[t]


class StreamingPartition:
    """Owners of cells of the last ``num_recent`` snapshots, and of sequences. All ranks must place each snapshot."""

    def __init__(self, plan: Plan, comm: Comm, seed: int, num_recent: int) -> None:
        self._comm, self._num_recent = comm, num_recent
        self._partitioner: StreamingPartitioner | None = None
        if comm.num_ranks > 1:
            if not isinstance(plan.placement, StreamingPlacement):
                raise OptionError(
                    f"placement {plan.placement} wants all snapshots at once, and they arrive one by one: take online, "
                    "greedy, hash, metis-so-far or metis-per-snapshot"
                )
            self._partitioner = plan.placement.start(comm.num_ranks, seed=seed) if comm.rank == 0 else None
        self._owners: dict[int, IntArray] = {}
        self._newest: IntArray = np.empty(0, np.int16)
        self.num_arrived = 0
        """How many have arrived."""

    def place_next(self, snapshot: Snapshot) -> None:
        """The next one, whose cells are placed for good."""
        self.num_arrived += 1
        if self._comm.num_ranks == 1:
            return
        with self._comm.rank_0_alone("place"):
            mine = None if self._partitioner is None else self._partitioner.place_next(snapshot)
        owners: IntArray = self._comm.broadcast_object(mine, kind="placement")
        self._owners[snapshot.t] = owners
        self._owners.pop(snapshot.t - self._num_recent, None)
        self._newest = grow_to(self._newest, snapshot).copy()
        self._newest[snapshot.nodes] = owners

    def partition_of(self, graph: DynamicGraph) -> Partition | None:
        """Who has what of a graph whose snapshots have arrived; None where one rank has all."""
        if self._comm.num_ranks == 1:
            return None
        of_sequence = np.maximum(self._newest, 0)  # nodes that were never there are nobody's: the first may say so
        of_sequence = np.concatenate([of_sequence, np.zeros(graph.num_nodes - len(of_sequence), np.int16)])
        return RecentPartition(
            self._comm.num_ranks,
            np.zeros(len(graph), np.int64),
            np.zeros(graph.num_nodes, np.int16),
            cell_owner=np.empty(0, np.int16),
            sequence_owner=of_sequence,
            recent_owners=self._owners,
        )

    def state_dict(self) -> dict[str, Any]:
        """The state of the partitioner, on rank 0, as tensors and plain values."""
        how = None if self._partitioner is None else self._partitioner.state_dict()
        ranks = self._comm.num_ranks
        all_of_it = {
            "ranks": ranks,
            "count": self.num_arrived,
            "how": how,
            "owners": self._owners,
            "newest": self._newest,
        }
        kept: dict[str, Any] = _map_arrays(all_of_it, np.ndarray, torch.from_numpy)
        return kept

    def load_state_dict(self, found: dict[str, Any], graph: DynamicGraph) -> None:
        """Goes on from what was remembered; on another number of ranks all snapshots that had arrived do so again."""
        if found["ranks"] != self._comm.num_ranks:
            for snapshot in graph[: found["count"]]:
                self.place_next(snapshot)
            return
        known = _map_arrays(found, torch.Tensor, torch.Tensor.numpy)
        self.num_arrived, self._owners, self._newest = known["count"], known["owners"], known["newest"]
        if self._partitioner is not None:
            self._partitioner.load_state_dict(known["how"])


def _map_arrays(nest: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """A nest of dictionaries and lists in which everything of a kind has become something else."""
    if isinstance(nest, kind):
        return change(nest)
    if isinstance(nest, dict):
        return {key: _map_arrays(value, kind, change) for key, value in nest.items()}
    if isinstance(nest, list | tuple):
        return type(nest)(_map_arrays(value, kind, change) for value in nest)
    return nest
