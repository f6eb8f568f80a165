"""Training, top to bottom: choose, place, seed, make the model, cut windows; for epoch, for step: forward, backward,
agree, clip, step; evaluate; save; log; at last the test part, with the best weights.

Every rank runs this, on its own cells; one rank has them all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from os import PathLike
from time import perf_counter
from typing import Any

import torch
from torch import nn

from strobe.comm import Alone, Comm
from strobe.comm.group import DEADLINE_S
from strobe.comm.launch import in_ranks
from strobe.comm.ledger import AGREEING, merged
from strobe.engine.asked import Asked
from strobe.engine.checkpoint import State
from strobe.engine.choice import ModelLike
from strobe.engine.decayed import decayed
from strobe.engine.decayed_svg import decayed_svg
from strobe.engine.diverged import DivergedError
from strobe.engine.drawn import Drawn, making
from strobe.engine.evaluate import score
from strobe.engine.exchanged import epoch_begins, recall, remembered, training_shares
from strobe.engine.interrupt import second_interrupt_kills
from strobe.engine.job import Given, Job, Prepared, Step, choose, prepared, reordered
from strobe.engine.judging import Judging
from strobe.engine.keeping import settle
from strobe.engine.launch import Place, Team, as_rank_of_torchrun, in_processes
from strobe.engine.machine import peak_bytes, random_state, seed_all
from strobe.engine.moments import Moments, ledgers
from strobe.engine.optimiser import make_optimiser
from strobe.engine.passes import ask, count, detached, window_loss
from strobe.engine.progress import Progress
from strobe.engine.record import CURVE, SLOTS, STEPS, TRAPEZOID, Record, open_record, refuse_other_kind
from strobe.engine.run import Run
from strobe.engine.scheduling import Scheduling, steps_svg
from strobe.engine.settings import Settings
from strobe.engine.slots import slots_svg
from strobe.engine.source import GraphLike
from strobe.engine.tuning import start_tuning
from strobe.plan import Plan
from strobe.sync import Syncing, average_buffers
from strobe.tasks.base import Task
from strobe.view import Carry, Share


def train(
    graph: GraphLike | None,
    model: ModelLike | None,
    task: str | Task | None = None,
    *,
    out: str | PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    data_dir: str | PathLike[str] | None = None,
    model_options: Mapping[str, Any] | None = None,
    plan: Plan | str | None = None,
    ranks: int = 1,
    deadline_s: float = DEADLINE_S,
    max_restarts: int = 0,
    settings: Settings | None = None,
    **changes: Any,
) -> Run:
    """Trains a model on a graph for a task, and scores it on the test part with its best weights.

    Args:
        graph: a dynamic graph, the directory of one, or the name of a data set.
        model: a registered name, a torch module with ``width`` and ``forward(view)``, or a function that makes one
            from the number of input features.
        task: a name, a task, or None for the one that fits the graph's labels.
        out: the run directory: checkpoints, a record of every epoch, the result. Without it nothing is kept.
        resume: go on with the run in ``out``, to the weights it would have had if it had never stopped. What is
            left out (graph and model may be None) is as it was; ``epochs`` and ``patience`` may be raised.
        overwrite: replace the run in ``out``.
        plan: how ranks share the work: a plan, the name of a preset, or None for time blocks with relay.
        ranks: processes on this machine that train together. A process that torchrun has started is one of the ranks
            it has made, whatever is said here.
        deadline_s: a rank that does not hear from another for so long ends the run.
        max_restarts: how often a run that failed goes on from its last checkpoint by itself (it needs ``out``).
        changes: fields of ``Settings``: epochs, lr, window, seed, device, ….
    """
    watch = Progress() if progress is None else progress
    given = Given(graph, model, task, model_options, settings, changes, data_dir, plan)
    place, team = Place(out, resume, overwrite), Team(ranks, deadline_s, max_restarts)
    if in_ranks():
        return as_rank_of_torchrun(train_here, given, place, watch, team)
    if ranks > 1:
        return in_processes(train_here, given, place, watch, team)
    return train_here(given, place, watch, Alone())


def train_here(given: Given, place: Place, watch: Progress, comm: Comm) -> Run:
    """Training as one rank. Rank 0 keeps the record; all ranks come to the same weights and scores."""
    began = perf_counter()
    mine = place if comm.rank == 0 else Place()
    with ExitStack() as stack:
        stack.enter_context(second_interrupt_kills())
        with comm.rank_0_alone("open"):
            record = stack.enter_context(open_record(mine.out, resume=mine.resume, overwrite=mine.overwrite))
        earlier = comm.share(record.earlier, kind="setup")
        if place.path is not None and earlier is not None:
            refuse_other_kind(place.path, earlier, watches=False)
        job, kept = settle(choose(given, earlier, watch, comm))
        state = fresh(job)
        if earlier is not None:
            start(job, record, watch, state, resumed=True)
        before_s = sum(line["train_s"] + line["evaluate_s"] for line in state.history)  # of the run that is resumed
        with comm.ledger.phase("prepare"):
            order = Scheduling(job, state.scheduled)
            windows = prepared(job, order.steps, watch)
        if earlier is None:  # a run that is replaced stays until nothing can be refused any more
            start(job, record, watch, state, resumed=False)
        did, _ = ledgers(job)
        record.event("prepared", prepare_s=round(perf_counter() - began, 6), **asdict(kept), **did)
        try:
            windows, moments = fit(job, state, order, windows, record, watch)
        except KeyboardInterrupt:
            record.event("interrupted", epoch=state.epoch)
            raise
        run = finish(job, state, windows, watch)
        window = decayed(job, windows.sliding) if comm.rank == 0 else None
        run.window = None if window is None else window.to_json()
        run.seconds, run.path = before_s + perf_counter() - began, record.path
        names = [] if windows.drawn is None else [str(size) for size in windows.drawn.sizes]
        steps = steps_svg(job, order, moments.ran, names)
        pictures = {CURVE: run.curve(), SLOTS: slots_svg(moments.slots), STEPS: steps}
        record.finish(run.to_json(), pictures | {TRAPEZOID: decayed_svg(window)})
    return run


def fresh(job: Job) -> State:
    """Fresh weights and their optimiser; the same on every rank."""
    model, head = job.make()
    state = State(model, head, make_optimiser([*model.parameters(), *head.parameters()], job))
    if job.comm.rank:
        seed_all(job.settings.seed + job.comm.rank)  # ranks drop different numbers where a model drops any
    return state


def start(
    job: Job, record: Record, watch: Progress, state: State, *, resumed: bool, config: dict[str, Any] | None = None
) -> None:
    """The record begins, in place of one that was there; or it goes on, and the state becomes what it was on every
    rank. ``config`` is what the record says of the job, where that is more than the job says itself."""
    with job.comm.rank_0_alone("start"):
        note = record.start(job.to_json() if config is None else config, state)
    if resumed and job.comm.num_ranks > 1:
        state.adopt(job.comm.share(state.captured() if job.comm.rank == 0 else None, kind="setup"), job.comm.rank)
    if note is not None:
        watch.note(note)


def fit(
    job: Job, state: State, order: Scheduling, windows: Prepared, record: Record, watch: Progress
) -> tuple[Prepared, Moments]:
    """Epochs until there are enough, or until the validation metric has stopped getting better.

    Gives the windows as they were in the last one, and when things ran in it.
    """
    moments = Moments()
    settings, problem, comm = job.settings, job.problem, job.comm
    weights = state.optimiser.param_groups[0]["params"]
    sync = job.plan.sync.start(weights, comm, state.optimiser, free=not job.plan.schedule.agrees)
    shares = training_shares(windows)
    recall(comm, shares, state.exchanged)
    state.exchanged = None
    judging = Judging(job, state, windows)
    tuning = start_tuning(job, state, windows.sliding, judging)

    def begin_training() -> None:
        steps = windows.num_steps
        watch.begin({"epochs": settings.epochs, "epoch": state.epoch, "steps": steps, "metric": problem.metric})

    begin_training()
    with making(windows.made_later, state, comm), judging:
        for epoch in range(state.epoch, settings.epochs):
            if settings.patience and state.stale >= settings.patience:
                break
            started = perf_counter()
            epoch_begins(shares, state.history)
            steps, loss, scored = tuning.trained(partial(train_epoch, job, state, sync, windows, epoch, watch))
            trained = perf_counter()
            state.epoch = epoch + 1
            steps += state.history[-1]["step"] if state.history else 0
            line: dict[str, Any] = {"epoch": state.epoch, "step": steps, "loss": loss}
            line |= judging.epoch_ends(scored)
            if not state.is_finite():
                raise DivergedError("a weight of the model", state.epoch, settings)
            line |= {"best": state.best, "best_epoch": state.best_epoch, "lr": settings.lr}
            line |= tuning.line()
            line |= {"train_s": round(trained - started, 6), "evaluate_s": round(perf_counter() - trained, 6)}
            line |= peak_bytes(job.device)
            did, moments = ledgers(job)
            line |= did
            if order.watches:
                line["watched"] = True  # batches were timed, not yet in the order to come
            state.history.append(line)
            changed = order.epoch_ends(moments.ran)
            state.scheduled = order.remembered()
            save(job, state, windows, shares, record, line)
            watch.epoch(line)
            tuning.tell(record, watch)
            if changed:
                record.event("scheduled", epoch=state.epoch, **order.told())
                windows = reordered(job, windows, order.steps)
                shares = training_shares(windows)
                begin_training()
        judging.training_ends()
        sync.close()
        save(job, state, windows, shares, record)
    return windows, moments


def train_epoch(
    job: Job, state: State, sync: Syncing, windows: Prepared, epoch: int, watch: Progress
) -> tuple[int, float]:
    """One pass over the training windows, or as many as are drawn for one: the steps of this rank, and the mean loss of
    all examples, each before the step it led to."""
    state.model.train()
    state.head.train()
    carry: Carry | None = None
    total, examples, step = 0.0, 0.0, 0
    sync.epoch_begins()
    for step, mine in enumerate(_steps(windows, sync, epoch), 1):
        job.comm.ledger.at(epoch + 1, step)
        began = perf_counter()
        value, number, carry = train_step(job, state, sync, mine, carry, epoch)
        if not math.isfinite(value):
            raise DivergedError("the loss", epoch + 1, job.settings)
        total, examples = total + value, examples + number
        if windows.drawn is not None and windows.drawn.learns:
            _choose_size(job, sync, windows.drawn, value / max(number, 1), perf_counter() - began)
        watch.step(epoch + 1, step)
    with job.comm.ledger.phase("sync"):
        sync.epoch_ends()
        if not job.plan.schedule.agrees:
            average_buffers(state.model, job.comm)
            total, examples = job.comm.agree([total, examples])
    return step, total / max(examples, 1)


def _steps(windows: Prepared, sync: Syncing, epoch: int) -> Iterator[Step]:
    """The windows of each step. Those that are drawn may go on until rank 0 has had enough."""
    steps = windows.sliding or windows.sampled
    if steps is not None:
        yield from steps.steps(epoch)
        return
    if windows.drawn is None:
        yield from windows.steps
        return
    step = 0
    while not sync.over if sync.follows else step < windows.drawn.num_steps:
        kind, window = windows.drawn.next()
        yield {kind: window}
        step += 1


def _choose_size(job: Job, sync: Syncing, drawn: Drawn, loss: float, seconds: float) -> None:
    """Rank 0's learner chooses the size of the batches to come, all follow: at once where ranks agree on every step,
    else as soon as they hear of it."""
    if job.comm.rank == 0:
        drawn.trained(loss, seconds)
    if job.plan.schedule.agrees:
        drawn.kind = job.comm.share(drawn.kind, kind="sizes")
    elif job.comm.rank == 0:
        sync.pass_on(drawn.kind)
    elif sync.told is not None:
        drawn.kind = sync.told


def train_step(
    job: Job, state: State, sync: Syncing, mine: Step, carry: Carry | None, epoch: int
) -> tuple[float, float, Carry | None]:
    """Forward and backward over this rank's windows of a step, one step of the optimiser; the summed loss of the
    examples, their number, and the state for the next step. Where ranks agree, step and examples are all ranks'."""
    comm, ledger = job.comm, job.comm.ledger
    agree = comm.agree if job.plan.schedule.agrees else list
    with ledger.phase("examples"):
        questions = _questions(job, mine, epoch)
        began = perf_counter()
        (number,) = agree([sum(count(each) for each in questions.values())])
        ledger.ran_batch(AGREEING, began)
    value = torch.zeros(())
    for k, (batch, window) in enumerate(mine.items(), 1):
        began = perf_counter()
        with ledger.phase("forward"):
            loss, carry = window_loss(state.model, state.head, job.problem, window, carry, questions[batch])
        carry = detached(carry)  # states go on to the next window, gradients do not come back from it
        for segment in window:
            ledger.count(cells=segment.cells.num_cells, arcs=segment.cells.num_arcs)
        value = value.to(loss) + loss.detach()
        if number:
            sync.backward_begins(last=k == len(mine))
            with ledger.phase("backward"):
                (loss * sync.share / number).backward()
        _until_it_ran(job)
        ledger.ran_batch(batch, began)
    began = perf_counter()
    with ledger.phase("sync"):
        if number:
            _agreed_step(job, state, sync, took_part=bool(mine))
        elif not job.plan.schedule.agrees:
            sync.stepped()  # others count on it
        comm.settle()
        (agreed,) = agree([float(value)]) if number else (0.0,)  # the only wait for the device in a step
    ledger.ran_batch(AGREEING, began)
    return agreed, number, carry


def _agreed_step(job: Job, state: State, sync: Syncing, *, took_part: bool) -> None:
    """Gradients become those of all, where ranks share them; the optimiser takes a step."""
    if not took_part:
        sync.backward_begins()
    sync.backward_ends()
    if job.settings.clip:
        nn.utils.clip_grad_norm_(state.optimiser.param_groups[0]["params"], job.settings.clip)
    state.optimiser.step()
    state.optimiser.zero_grad()
    sync.stepped()
    own_cells = job.has_at_hand or job.plan.batching.sampling is not None or not job.sharing.is_shared
    if job.plan.schedule.agrees and own_cells:
        average_buffers(state.model, job.comm)


def _questions(job: Job, mine: Step, epoch: int) -> dict[int, list[Asked | None]]:
    """What is asked of each window. Where that is made anew in every epoch, it is a part of the batch's work."""
    found = {}
    for batch, window in mine.items():
        began = perf_counter()
        found[batch] = ask(job.problem, window, epoch)
        if job.problem.changes_with_epoch:
            job.comm.ledger.ran_batch(batch, began)
    return found


def _until_it_ran(job: Job) -> None:
    """A GPU runs behind. Where batches are one rank's each, their seconds are looked at, so it is waited for."""
    if job.device.type == "cuda" and job.plan.schedule.wants is not None:
        torch.cuda.synchronize(job.device)


def save(
    job: Job,
    state: State,
    windows: Prepared,
    shares: list[Share],
    record: Record,
    line: dict[str, Any] | None = None,
) -> None:
    """The epoch's line and, if it is time, a checkpoint; at the end (no line) always one. Rank 0's clock decides."""
    if line is not None:
        record.epoch(line)
    with job.comm.ledger.phase("save"):
        if job.comm.share(record.is_due(now=line is None), kind="setup"):
            state.random = job.comm.gather(random_state(), kind="setup")
            state.exchanged = remembered(job.comm, shares)
            if windows.made_later is not None:
                state.drawn = job.comm.collect(windows.made_later.remembered(), kind="setup")
            with job.comm.rank_0_alone("checkpoint"):
                record.save(state)
            state.exchanged = state.drawn = None  # the record has its copy


def finish(job: Job, state: State, windows: Prepared, watch: Progress) -> Run:
    """Scores the test part, for the first and only time, with the weights that were best in validation."""
    watch.stage("scoring the test snapshots", 0, None)
    problem, split = job.problem, job.problem.split
    state.use_best()
    best_epoch = state.best_epoch or state.epoch
    lines = [line for line in state.history if "validation" in line]
    judged = [line["validation"] for line in lines if line.get("judged", line["epoch"]) == best_epoch]
    scored = (state.model, state.head, job)
    validation = judged[0] if judged else score(*scored, windows.validation, split.validation)
    test = score(*scored, job.evaluation_windows(split.test, windows.validation), split.test)
    # What follows is rank 0's alone: nobody waits for it.
    parts = ("validation", "test") if job.comm.rank == 0 else ()
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
        baselines={part: problem.baselines(part) for part in parts},
        memory=peak_bytes(job.device),
        ranks=[merged(list(each)) | {"epochs": len(ranks)} for each in zip(*ranks, strict=True)],
    )
