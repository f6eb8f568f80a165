"""Where windows are while others are computed: on the device, or offloaded to the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from strobe.engine.job import Job
from strobe.engine.machine import free_bytes
from strobe.engine.services import PeakBytes
from strobe.errors import InputError, OptionError
from strobe.format import file_size, pluralize

_DEVICES_WITH_MEMORY = ("cuda",)
"""Devices that have a memory of their own: windows may wait in the host's."""

_USABLE_SHARE = {"cuda": 0.95, "cpu": 0.8}
"""Usable share of free memory: fragmentation, and other users of the host."""


@dataclass(frozen=True)
class Residency:
    """Whether windows are offloaded, and the predicted peak device memory; None where it was not estimated."""

    offloaded: bool = False
    predicted_device_bytes: int | None = None


def choose_residency(job: Job) -> tuple[Job, Residency]:
    """Fit a job to its device: all windows resident, or offloaded to the host, or recomputed in segments. The user is
    told which."""
    keep = job.settings.offload
    if keep == "always":
        return replace(job, offload=True), Residency(offloaded=True)
    if keep == "never" or job.comm.num_ranks > 1 or not job.caches_windows or not job.services.estimates_memory:
        return job, Residency()
    if any(batch.seed_nodes is not None for batch in job.batches):
        return job, Residency()  # windows of some nodes are small already
    room = _USABLE_SHARE[job.device.type] * free_bytes(job.device)
    return (
        (replace(job, fits_in_memory=True), Residency())
        if job.services.upper_bound_bytes(job).sum() < room / 2
        else _fit_to_memory(job, room)
    )


def _fit_to_memory(job: Job, room: float) -> tuple[Job, Residency]:
    may_wait, tried = job.device.type in _DEVICES_WITH_MEMORY, []
    for segmented in _recompute_candidates(job):
        job.progress.stage("estimating memory", 0, None)
        try:
            tried.append(job.services.predict_peak_memory(segmented))
        except InputError as error:  # a part of the graph may have nothing to learn from where the whole has
            job.progress.note(f"memory cannot be estimated: {error}")
            return job, Residency()
        streams = tried[-1].resident > room
        if not streams or (may_wait and tried[-1].offloaded <= room):
            kept = Residency(streams, tried[-1].offloaded if streams else tried[-1].resident)
            if may_wait or len(tried) > 1 or tried[0].resident > room / 2:
                job.progress.note(_describe(segmented, tried, kept, room))
            return replace(segmented, offload=streams, fits_in_memory=True), kept
    least = tried[-1].offloaded if may_wait else tried[-1].resident
    trouble = (
        f"training takes at least {file_size(least)} on {job.device}, and {file_size(room)} are free: take fewer "
        f"snapshots a step (--window {max(1, _longest_batch(job) // 2)}), a smaller --hidden, or more ranks (--ranks)"
    )
    if may_wait:
        raise OptionError(trouble)
    job.progress.note(trouble)  # a host may still have memory that is not counted, such as swap
    return job, Residency(predicted_device_bytes=tried[0].resident)


def _recompute_candidates(job: Job) -> Iterator[Job]:
    """The job, and unless it sets ``recompute`` the job with ever shorter segments."""
    yield job
    size = _longest_batch(job) if job.settings.recompute is None else 1
    while size > 1:
        size = -(-size // 2)
        yield replace(job, settings=replace(job.settings, recompute=size))


def _longest_batch(job: Job) -> int:
    return max(len(batch.times) for batch in job.batches)


def _describe(job: Job, tried: list[PeakBytes], kept: Residency, room: float) -> str:
    """What was chosen and why, for people."""
    assert kept.predicted_device_bytes is not None
    free, taken = (
        f"{file_size(room)} are free on {job.device}",
        f"about {file_size(kept.predicted_device_bytes)} will be taken",
    )
    if len(tried) == 1 and not kept.offloaded:
        return f"{free}, {taken}"
    ways = ["windows wait in the host's memory"] * kept.offloaded
    segments = job.settings.recompute
    if segments is not None and len(tried) > 1:
        ways.append(f"{pluralize(segments, 'snapshot')} are computed at a time (--recompute {segments})")
    return f"{free}, and about {file_size(tried[0].resident)} would be taken: {' and '.join(ways)}, so that {taken}"
