"""Training, from the request to the scored run: on this rank, in processes, or under torchrun."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple

from strobe.batching.base import StepSource
from strobe.comm import Comm, SingleRankComm
from strobe.comm.launch.environment import is_launched_rank
from strobe.comm.ledger import merge_ledgers
from strobe.engine.checkpoint.store import TrainState
from strobe.engine.context import RunContext
from strobe.engine.evaluation.calibrate import CalibratedLinks, calibrate
from strobe.engine.evaluation.evaluate import cached_examples, score
from strobe.engine.fit import fit
from strobe.engine.inputs.resolve import TrainRequest, resolve
from strobe.engine.job import Job
from strobe.engine.launch.processes import LaunchConfig, OutputConfig, train_in_processes, train_under_torchrun
from strobe.engine.machine import free_bytes, kill_on_second_interrupt, peak_bytes, seed_all
from strobe.engine.optimizer import make_optimizer
from strobe.engine.progress import Progress
from strobe.engine.records.run_directory import RunRecord, open_record, refuse_other_kind
from strobe.engine.records.startup import StartupClock
from strobe.engine.records.timing import gather_ledgers
from strobe.engine.run import Run
from strobe.engine.services import PeakBytes
from strobe.engine.sources.context import EngineSources
from strobe.errors import InputError, OptionError
from strobe.format import file_size, pluralize
from strobe.tasks.base import Examples, Metrics


def run_training(request: TrainRequest, output: OutputConfig, launch: LaunchConfig, progress: Progress) -> Run:
    """Train in this process, in processes on this machine, or as one of the ranks that torchrun has started."""
    progress = StartupClock.around(progress)
    if is_launched_rank():
        return train_under_torchrun(train_on_rank, request, output, progress, launch)
    if launch.ranks > 1:
        return train_in_processes(train_on_rank, request, output, progress, launch)
    return train_on_rank(request, output, progress, SingleRankComm())


def train_on_rank(request: TrainRequest, output: OutputConfig, progress: Progress, comm: Comm) -> Run:
    """Train as one rank. Rank 0 writes the record; all ranks end with the same weights and scores."""
    began, progress = perf_counter(), StartupClock.around(progress)
    mine = output if comm.rank == 0 else OutputConfig()
    with ExitStack() as stack:
        stack.enter_context(kill_on_second_interrupt())
        with comm.rank_0_alone("open"):
            record = stack.enter_context(open_record(mine.out, resume=mine.resume, overwrite=mine.overwrite))
        earlier = comm.broadcast_object(record.earlier, kind="setup")
        if output.path is not None and earlier is not None:
            refuse_other_kind(output.path, earlier, online=False)
        job, residency = choose_residency(resolve(request, earlier, progress, comm))
        state = initial_state(job)
        if earlier is not None:
            start_record(job, record, state, resumed=True)
        before_s = sum(line["train_s"] + line["evaluate_s"] for line in state.history)  # of the run that is resumed
        with comm.ledger.phase("prepare"):
            source = job.plan.batching.start(EngineSources(job, state.parts.get("source")))
        if earlier is None:  # a run that is replaced stays until nothing can be refused any more
            start_record(job, record, state, resumed=False)
        ledgers, _ = gather_ledgers(job)
        record.event("prepared", prepare_s=round(perf_counter() - began, 6), **asdict(residency), **ledgers)
        context = RunContext.start(job, state, source, record, progress)
        try:
            fit(context)
        except KeyboardInterrupt:
            record.event("interrupted", epoch=state.epoch)
            raise
        run = score_run(job, state, source, progress)
        run.seconds, run.path = before_s + perf_counter() - began, record.path
        artifacts = source.artifacts() if comm.rank == 0 else {}
        run.startup = progress.times.to_json()
        run.window = artifacts["window_cost"].to_json() if "window_cost" in artifacts else None
        record.finish(run.to_json(), job.services.charts(run, artifacts, context.trace) if comm.rank == 0 else {})
    return run


def initial_state(job: Job) -> TrainState:
    """Fresh weights and their optimiser; the same on every rank."""
    model, head = job.make_model()
    state = TrainState(model, head, make_optimizer([*model.parameters(), *head.parameters()], job))
    if job.comm.rank:
        seed_all(job.settings.seed + job.comm.rank)  # ranks drop different numbers where a model drops any
    return state


def start_record(
    job: Job,
    record: RunRecord,
    state: TrainState,
    *,
    resumed: bool,
    config: dict[str, Any] | None = None,
) -> None:
    """Start the record, replacing an earlier run, or resume it and load the state on every rank. ``config`` replaces
    the job's own configuration."""
    with job.comm.rank_0_alone("start"):
        record.start(job.to_json() if config is None else config, state)
    if resumed and job.comm.num_ranks > 1:
        state.load_state_dict(
            job.comm.broadcast_object(state.state_dict() if job.comm.rank == 0 else None, kind="setup"), job.comm.rank
        )


def score_run(job: Job, state: TrainState, source: StepSource, progress: Progress) -> Run:
    """Scores the test part, for the first and only time, with the weights that were best in validation."""
    progress.stage("scoring the test snapshots", 0, None)
    split = job.problem.split
    state.use_best()
    best_epoch = state.epoch if state.best_weights is None else state.best_epoch
    lines = [line for line in state.history if "validation" in line]
    judged = [line["validation"] for line in lines if line.get("evaluated_epoch", line["epoch"]) == best_epoch]
    scored = (state.model, state.head, job)
    validation = judged[0] if judged else score(*scored, source.validation_windows, split.validation)
    examples = dict[int, Examples]()
    test_windows = job.evaluation_windows(split.test, source.validation_windows)
    test = score(*scored, test_windows, split.test, scored=examples)
    # What follows is rank 0's alone: no rank waits for it.
    baselines: dict[str, dict[str, Metrics]] = {}
    if job.comm.rank == 0:
        baselines["test"] = job.baselines("test", scored=examples)
        examples = cached_examples(job, source.validation_windows, split.validation)
        baselines = {"validation": job.baselines("validation", scored=examples)} | baselines
    del examples
    # A run that went on with another number of ranks tells of the last.
    ranks = [line["ranks"] for line in state.history if len(line.get("ranks", [])) == job.comm.num_ranks]
    return Run(
        job=job,
        model=state.model,
        head=state.head,
        history=state.history,
        best_epoch=best_epoch,
        validation=validation,
        test=test,
        baselines=baselines,
        memory=peak_bytes(job.device),
        calibration=_calibrate(job, state, source, progress) if job.comm.rank == 0 else None,
        backend=job.comm.backend,
        ranks=[merge_ledgers(list(each)) | {"epochs": len(ranks)} for each in zip(*ranks, strict=True)],
    )


def _calibrate(job: Job, state: TrainState, source: StepSource, progress: Progress) -> CalibratedLinks | None:
    """The calibration of a link task with the best weights."""
    last = job.problem.split.test.stop
    known = source.validation_windows if job.comm.num_ranks == 1 else None

    def show(t: int) -> None:
        progress.stage("calibrating probabilities", t + 1, last)

    return calibrate(job, state.model, state.head, known, show)


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
    """Fit a job to the device of the rank that has least free: all windows resident, or offloaded to the host, or
    recomputed in segments. All ranks do the same, and the user is told what."""
    keep, comm = job.settings.offload, job.comm
    if keep == "always":
        return replace(job, offload=True), Residency(offloaded=True)
    if keep == "never" or not job.caches_windows or not job.services.estimates_memory:
        return job, Residency()
    if any(batch.seed_nodes is not None for batch in job.batches):
        return job, Residency()  # windows of some nodes are small already
    room = min(comm.all_gather_object(_USABLE_SHARE[job.device.type] * free_bytes(job.device), kind="setup"))
    chosen: _Choice | None = None
    with comm.rank_0_alone("estimate"):
        if comm.rank == 0:
            fits_easily = job.services.upper_bound_bytes(job).sum() < room / 2
            chosen = _Choice(Residency(), job.settings.recompute) if fits_easily else _fit_to_memory(job, room)
    chosen = comm.broadcast_object(chosen, kind="setup")
    assert chosen is not None
    settings = replace(job.settings, recompute=chosen.recompute)
    fitted = replace(job, settings=settings, offload=chosen.residency.offloaded, fits_in_memory=chosen.fits)
    return fitted, chosen.residency


class _Choice(NamedTuple):
    """Where windows are, the snapshots that are computed at a time, and whether all that is cached is known to fit."""

    residency: Residency
    recompute: int | None
    fits: bool = True


def _fit_to_memory(job: Job, room: float) -> _Choice:
    may_wait, tried = job.device.type in _DEVICES_WITH_MEMORY, []
    for segmented in _recompute_candidates(job):
        job.progress.stage("estimating memory", 0, None)
        try:
            tried.append(job.services.estimate_peak_memory(segmented, room))
        except InputError as error:  # a part of the graph may have nothing to learn from where the whole has
            job.progress.note(f"memory cannot be estimated: {error}")
            return _Choice(Residency(), job.settings.recompute, fits=False)
        streams = tried[-1].resident > room
        if not streams or (may_wait and tried[-1].offloaded <= room):
            kept = Residency(streams, tried[-1].offloaded if streams else tried[-1].resident)
            if len(tried) > 1 or tried[0].resident > room / 2:
                job.progress.note(_describe(segmented, tried, kept, room))
            return _Choice(kept, segmented.settings.recompute)
    least = tried[-1].offloaded if may_wait else tried[-1].resident
    trouble = (
        f"training takes at least {file_size(least)} on {job.device}, and {file_size(room)} are free: take fewer "
        f"snapshots a step (--window {max(1, _longest_batch(job) // 2)}), a smaller --hidden, or more ranks (--ranks)"
    )
    if may_wait:
        raise OptionError(trouble)
    job.progress.note(trouble)  # a host may still have memory that is not counted, such as swap
    return _Choice(Residency(predicted_device_bytes=tried[0].resident), job.settings.recompute, fits=False)


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
