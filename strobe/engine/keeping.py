"""Where windows are kept while others are computed: on the device, as long as they fit there, or beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from strobe.engine.job import Job
from strobe.engine.machine import free_bytes
from strobe.errors import OptionError
from strobe.numbers import file_size, number_of

if TYPE_CHECKING:
    from strobe.planner.device_memory import Foretold

_SCARCE = ("cuda",)
"""Devices that have a memory of their own, which may be less than the host's."""

_ROOM = 0.95
"""The part of a device's memory that tensors may take: what was freed does not always fit what is asked for next."""


@dataclass(frozen=True)
class Kept:
    """Where windows are, and the most bytes that tensors will have on the device; None where nobody asked."""

    streamed: bool = False
    foretold_bytes: int | None = None


def settle(job: Job) -> tuple[Job, Kept]:
    """A job that fits its device: windows stay on it, or only two at a time are there, or even those are computed in
    segments. What is chosen is said."""
    keep = job.settings.keep
    if keep == "host":
        return replace(job, streams=True), Kept(streamed=True)
    if keep == "device" or job.device.type not in _SCARCE or job.comm.num_ranks > 1 or not job.keeps_windows:
        return job, Kept()
    if any(batch.targets is not None for batch in job.batches):
        return job, Kept()  # windows of some nodes are small already
    from strobe.planner.batch_memory import at_most
    from strobe.planner.device_memory import foretold

    room = _ROOM * free_bytes(job.device)
    if at_most(job).sum() < room / 2:
        return job, Kept()
    least = None
    for segmented in _segmented(job):
        job.watch.stage("foretelling what the device must hold", 0, None)
        least = foretold(segmented)
        if min(least.resident, least.streamed) <= room:
            streams = least.resident > room
            kept = Kept(streams, least.streamed if streams else least.resident)
            job.watch.note(_said(segmented, least, kept, room))
            return replace(segmented, streams=streams), kept
    assert least is not None
    raise OptionError(
        f"training takes at least {file_size(least.streamed)} on {job.device}, and {file_size(room)} are free: take "
        f"fewer snapshots a step (--window {max(1, _longest(job) // 2)}), a smaller --hidden, or more ranks (--ranks)"
    )


def _segmented(job: Job) -> Iterator[Job]:
    """The job, and, unless it says so itself, the same in more and more segments."""
    yield job
    size = _longest(job) if job.settings.recompute is None else 1
    while size > 1:
        size = -(-size // 2)
        yield replace(job, settings=replace(job.settings, recompute=size))


def _longest(job: Job) -> int:
    return max(len(batch.times) for batch in job.batches)


def _said(job: Job, foretold: Foretold, kept: Kept, room: float) -> str:
    """What was chosen and why, for people."""
    free = f"{file_size(room)} are free on {job.device}"
    segments = job.settings.recompute
    how = "" if segments is None else f", {number_of(segments, 'snapshot')} computed at a time (--recompute {segments})"
    if not kept.streamed:
        return f"{free}, about {file_size(foretold.resident)} will be taken: all windows stay there{how}"
    return (
        f"{free}, and all windows would take about {file_size(foretold.resident)}: they wait in the host's memory, "
        f"so that about {file_size(foretold.streamed)} will be taken{how}"
    )
