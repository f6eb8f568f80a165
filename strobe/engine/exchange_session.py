"""The exchanges of a run: what they learn between epochs, and their state in a checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from strobe.comm import Comm
from strobe.engine.checkpoint.folder import copy_tree
from strobe.engine.checkpoint.store import loading
from strobe.view import LocalPartition


class ExchangeSession:
    """All row exchanges of this rank's training windows, which ``partitions`` gives, each once."""

    def __init__(self, comm: Comm, partitions: Callable[[], Sequence[LocalPartition]]) -> None:
        self._comm, self._partitions = comm, partitions

    def begin_epoch(self, losses: Sequence[float]) -> None:
        """Tell all exchanges the first and the last epoch's loss: thresholds may follow it."""
        first, last = (losses[0], losses[-1]) if losses else (None, None)
        for partition in self._partitions():
            for exchange in partition.row_exchanges.values():
                exchange.begin_epoch(first, last)

    def state_dict(self) -> dict[str, Any] | None:
        """The state of the exchanges of all ranks, on rank 0; None where they have none."""
        partitions = self._partitions()
        states = [{stage: each.state_dict() for stage, each in part.row_exchanges.items()} for part in partitions]
        if not any(any(stages.values()) for stages in states):
            return None  # on all ranks: they went through the same exchanges
        ranks = self._comm.gather_object(copy_tree(states, "cpu"), kind="setup")
        return {"where": _digest(partitions), "ranks": ranks}

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Continue from a saved state. With another number of ranks, other owners or other segments it no longer
        holds, and the first pass sends every row."""
        partitions = self._partitions()
        if state is None or not partitions:
            return
        with loading("the checkpoint's exchange"):
            if len(state["ranks"]) != self._comm.num_ranks or state["where"] != _digest(partitions):
                return
            for partition, stages in zip(partitions, state["ranks"][self._comm.rank], strict=True):
                for stage, exchange in partition.row_exchanges.items():
                    exchange.load_state_dict(stages[stage])


def _digest(partitions: Sequence[LocalPartition]) -> str:
    """A checksum of owners and of the snapshots that are computed together; the same on all ranks."""
    digest = hashlib.sha256(repr([each.owners.times for each in partitions]).encode())
    placed = partitions[0].partition
    for part in (placed.snapshot_owner, placed.node_owner, placed.cell_owner, placed.sequence_owner):
        digest.update(b"-" if part is None else part.tobytes())
    return digest.hexdigest()
