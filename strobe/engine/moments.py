"""What ranks did, and when, brought together on rank 0."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from strobe.comm.ledger import Ran
from strobe.engine.job import Job
from strobe.engine.machine import peak_bytes
from strobe.engine.slots import Slots, busy_share


@dataclass(frozen=True)
class Moments:
    """When things ran in an epoch, of every rank; on rank 0."""

    slots: Slots = field(default_factory=list)
    ran: list[list[Ran]] = field(default_factory=list)


def ledgers(job: Job) -> tuple[dict[str, Any], Moments]:
    """What every rank did since the last time, and when, on rank 0. One rank alone only tells when."""
    mine = job.comm.ledger.cut() | peak_bytes(job.device)
    if job.comm.num_ranks == 1:
        return {}, Moments(ran=[mine["ran"]])
    everyone = job.comm.collect(mine, kind="ledger")
    moments = Moments([each.pop("slots") for each in everyone], [each.pop("ran") for each in everyone])
    busy = busy_share(moments.slots)
    return {"ranks": everyone} | ({} if busy is None else {"busy": busy}), moments
