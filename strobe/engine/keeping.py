"""Where windows are kept while others are computed: on the device, as long as they fit there, or beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from strobe.engine.job import Job
from strobe.engine.machine import free_bytes
from strobe.errors import InputError, OptionError
from strobe.numbers import file_size, number_of

if TYPE_CHECKING:
    from strobe.planner.device_memory import Foretold

_OWN_MEMORY = ("cuda",)
"""Devices that have a memory of their own: windows may wait in the host's."""

_ROOM = {"cuda": 0.95, "cpu": 0.8}
"""The part of what is free that tensors may take: what was given back does not always fit what is asked for next, and a
host has other things in its memory, too."""


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
    if keep == "device" or job.comm.num_ranks > 1 or not job.keeps_windows:
        return job, Kept()
    if any(batch.targets is not None for batch in job.batches):
        return job, Kept()  # windows of some nodes are small already
    from strobe.planner.batch_memory import at_most

    room = _ROOM[job.device.type] * free_bytes(job.device)
    return (replace(job, fits=True), Kept()) if at_most(job).sum() < room / 2 else _fitted(job, room)


def _fitted(job: Job, room: float) -> tuple[Job, Kept]:
    from strobe.planner.device_memory import foretold

    may_wait, tried = job.device.type in _OWN_MEMORY, []
    for segmented in _segmented(job):
        job.watch.stage("foretelling how much memory it takes", 0, None)
        try:
            tried.append(foretold(segmented))
        except InputError as error:  # a part of the graph may have nothing to learn from where the whole has
            job.watch.note(f"how much memory it takes cannot be foretold: {error}")
            return job, Kept()
        streams = tried[-1].resident > room
        if not streams or (may_wait and tried[-1].streamed <= room):
            kept = Kept(streams, tried[-1].streamed if streams else tried[-1].resident)
            if may_wait or len(tried) > 1 or tried[0].resident > room / 2:
                job.watch.note(_said(segmented, tried, kept, room))
            return replace(segmented, streams=streams, fits=True), kept
    least = tried[-1].streamed if may_wait else tried[-1].resident
    trouble = (
        f"training takes at least {file_size(least)} on {job.device}, and {file_size(room)} are free: take fewer "
        f"snapshots a step (--window {max(1, _longest(job) // 2)}), a smaller --hidden, or more ranks (--ranks)"
    )
    if may_wait:
        raise OptionError(trouble)
    job.watch.note(trouble)  # a host may still have what nobody foretold, such as swap
    return job, Kept(foretold_bytes=tried[0].resident)


def _segmented(job: Job) -> Iterator[Job]:
    """The job, and, unless it says so itself, the same in more and more segments."""
    yield job
    size = _longest(job) if job.settings.recompute is None else 1
    while size > 1:
        size = -(-size // 2)
        yield replace(job, settings=replace(job.settings, recompute=size))


def _longest(job: Job) -> int:
    return max(len(batch.times) for batch in job.batches)


def _said(job: Job, tried: list[Foretold], kept: Kept, room: float) -> str:
    """What was chosen and why, for people."""
    assert kept.foretold_bytes is not None
    free, taken = f"{file_size(room)} are free on {job.device}", f"about {file_size(kept.foretold_bytes)} will be taken"
    if len(tried) == 1 and not kept.streamed:
        return f"{free}, {taken}"
    ways = ["windows wait in the host's memory"] * kept.streamed
    segments = job.settings.recompute
    if segments is not None and len(tried) > 1:
        ways.append(f"{number_of(segments, 'snapshot')} are computed at a time (--recompute {segments})")
    return f"{free}, and about {file_size(tried[0].resident)} would be taken: {' and '.join(ways)}, so that {taken}"
