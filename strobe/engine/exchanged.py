"""What exchanges are told between epochs, and what they must remember for a run that goes on in other processes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from strobe.comm import Comm
from strobe.engine.checkpoint import restoring
from strobe.engine.job import Prepared
from strobe.engine.nest import copied
from strobe.view import Share


def training_shares(windows: Prepared) -> list[Share]:
    """This rank's shares of what it trains on, each once, in the order they come; of windows that slide, which are new
    in every step, one that stands for all."""
    if windows.sliding is not None:
        return [windows.sliding.share]
    segments = (segment for step in windows.steps for window in step.values() for segment in window)
    return list({id(share): share for segment in segments if (share := segment.cells.share) is not None}.values())


def epoch_begins(shares: Sequence[Share], history: Sequence[Mapping[str, Any]]) -> None:
    """Tells all exchanges how the loss has come along."""
    first, last = (history[0]["loss"], history[-1]["loss"]) if history else (None, None)
    for share in shares:
        for courier in share.couriers.values():
            courier.epoch_begins(first, last)


def remembered(comm: Comm, shares: Sequence[Share]) -> dict[str, Any] | None:
    """What the exchanges of all ranks remember, on rank 0; None where they need not."""
    mine = [{stage: courier.remembered() for stage, courier in share.couriers.items()} for share in shares]
    if not any(any(stages.values()) for stages in mine):
        return None  # on all ranks: they went through the same exchanges
    return {"where": _where(shares), "ranks": comm.collect(copied(mine, "cpu"), kind="setup")}


def recall(comm: Comm, shares: Sequence[Share], found: dict[str, Any] | None) -> None:
    """Goes on from what was remembered; with another number of ranks, other owners or other segments nothing of it is
    true any more, and exchanges begin anew: their first pass is fresh."""
    if found is None or not shares:
        return
    with restoring("the checkpoint's exchange"):
        if len(found["ranks"]) != comm.num_ranks or found["where"] != _where(shares):
            return
        for share, stages in zip(shares, found["ranks"][comm.rank], strict=True):
            for stage, courier in share.couriers.items():
                courier.remember(stages[stage])


def _where(shares: Sequence[Share]) -> str:
    """A sum over who owns what and which snapshots are computed together; the same on all ranks."""
    digest = hashlib.sha256(repr([share.owners.times for share in shares]).encode())
    placed = shares[0].placed
    for part in (placed.of_snapshot, placed.of_node, placed.of_cell, placed.of_sequence):
        digest.update(b"-" if part is None else part.tobytes())
    return digest.hexdigest()
