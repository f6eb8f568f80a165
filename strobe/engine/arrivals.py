"""Snapshots placed on ranks as they arrive: rank 0 decides, all are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from strobe.comm import Comm
from strobe.errors import OptionError
from strobe.graph import DynamicGraph, Snapshot
from strobe.ops.csr import IntArray
from strobe.placement import Placed
from strobe.placement.arriving import Arriving, AsTheyArrive, reaching
from strobe.plan import Plan


@dataclass(frozen=True, eq=False)
class Recent(Placed):
    """Owners of the cells of the last snapshots alone. A sequence is its newest cell's owner's."""

    of_recent: Mapping[int, IntArray] = field(default_factory=dict)

    def owners(self, graph: DynamicGraph, t: int) -> IntArray:
        del graph
        return self.of_recent[t]


class Arrivals:
    """Who has which cells of the last ``kept`` snapshots, and which sequences. All ranks must hear of each arrival."""

    def __init__(self, plan: Plan, comm: Comm, seed: int, kept: int) -> None:
        self._comm, self._kept = comm, kept
        self._arriving: Arriving | None = None
        if comm.num_ranks > 1:
            if not isinstance(plan.placement, AsTheyArrive):
                raise OptionError(
                    f"placement {plan.placement} wants all snapshots at once, and they arrive one by one: take online, "
                    "greedy, hash, metis-so-far or metis-per-snapshot"
                )
            self._arriving = plan.placement.start(comm.num_ranks, seed=seed) if comm.rank == 0 else None
        self._owners: dict[int, IntArray] = {}
        self._newest: IntArray = np.empty(0, np.int16)
        self.count = 0
        """How many have arrived."""

    def arrive(self, snapshot: Snapshot) -> None:
        """The next one, whose cells are placed for good."""
        self.count += 1
        if self._comm.num_ranks == 1:
            return
        with self._comm.rank_0_alone("place"):
            mine = None if self._arriving is None else self._arriving.arrive(snapshot)
        owners: IntArray = self._comm.share(mine, kind="placement")
        self._owners[snapshot.t] = owners
        self._owners.pop(snapshot.t - self._kept, None)
        self._newest = reaching(self._newest, snapshot).copy()
        self._newest[snapshot.nodes] = owners

    def placed(self, graph: DynamicGraph) -> Placed | None:
        """Who has what of a graph whose snapshots have arrived; None where one rank has all."""
        if self._comm.num_ranks == 1:
            return None
        of_sequence = np.maximum(self._newest, 0)  # nodes that were never there are nobody's: the first may say so
        of_sequence = np.concatenate([of_sequence, np.zeros(graph.num_nodes - len(of_sequence), np.int16)])
        return Recent(
            self._comm.num_ranks,
            np.zeros(len(graph), np.int64),
            np.zeros(graph.num_nodes, np.int16),
            of_cell=np.empty(0, np.int16),
            of_sequence=of_sequence,
            of_recent=self._owners,
        )

    def remembered(self) -> dict[str, Any]:
        """All that says how it goes on, on rank 0, as tensors and plain values."""
        how = None if self._arriving is None else self._arriving.remembered()
        ranks = self._comm.num_ranks
        all_of_it = {"ranks": ranks, "count": self.count, "how": how, "owners": self._owners, "newest": self._newest}
        kept: dict[str, Any] = _changed(all_of_it, np.ndarray, torch.from_numpy)
        return kept

    def recall(self, found: dict[str, Any], graph: DynamicGraph) -> None:
        """Goes on from what was remembered; on another number of ranks all snapshots that had arrived do so again."""
        if found["ranks"] != self._comm.num_ranks:
            for snapshot in graph[: found["count"]]:
                self.arrive(snapshot)
            return
        known = _changed(found, torch.Tensor, torch.Tensor.numpy)
        self.count, self._owners, self._newest = known["count"], known["owners"], known["newest"]
        if self._arriving is not None:
            self._arriving.recall(known["how"])


def _changed(nest: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """A nest of dictionaries and lists in which everything of a kind has become something else."""
    if isinstance(nest, kind):
        return change(nest)
    if isinstance(nest, dict):
        return {key: _changed(value, kind, change) for key, value in nest.items()}
    if isinstance(nest, list | tuple):
        return type(nest)(_changed(value, kind, change) for value in nest)
    return nest
