"""What a run is made of: graph, task, model and settings, chosen, checked against an earlier run, and prepared."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import nn

import strobe
from strobe.batching import Batch
from strobe.batching.base import pieces, windows_ending_with
from strobe.comm import Alone, Comm
from strobe.engine.asked import asked, asked_at
from strobe.engine.at_hand import AtHand
from strobe.engine.checkpoint import restoring
from strobe.engine.choice import ModelChoice, ModelLike, choose_model, choose_task, task_json
from strobe.engine.drawn import Drawn
from strobe.engine.kept import Room
from strobe.engine.machine import choose_arithmetic, choose_device, choose_threads, free_bytes, seed_all
from strobe.engine.progress import Progress
from strobe.engine.sampled import SampledSteps
from strobe.engine.settings import Settings
from strobe.engine.sharing import Sharing, place
from strobe.engine.sliding import Sliding
from strobe.engine.source import GraphLike, Saved, Source, fingerprint, open_source, reopen
from strobe.engine.trace import reading, sparse_products
from strobe.engine.windows import Window, cut, stream, window_of
from strobe.engine.work import work_of
from strobe.errors import OptionError
from strobe.io.limits import check_address_space
from strobe.ops import native, triton
from strobe.placement import Placed, Work
from strobe.placement.work import Loads, counted
from strobe.plan import Plan
from strobe.presets import preset
from strobe.schedule import Steps
from strobe.tasks import Problem, Task, make_task
from strobe.view import Cache
from strobe.view.streamed import Streamed

MIN_ADDRESS_SPACE = 256 << 20
"""Bytes that a run must be allowed to map: with 16 MiB, torch was seen to hang or to end the process."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """All that stays the same while a run trains."""

    source: Source
    choice: ModelChoice
    task: Task
    problem: Problem
    settings: Settings
    plan: Plan
    comm: Comm
    device: torch.device
    threads: int
    streams: bool = False
    """Whether windows are on the device only while they are computed."""
    fits: bool = False
    """Whether all that is kept is known to fit where it is kept."""
    watch: Progress = field(default_factory=Progress, repr=False)
    _decided: list[Sharing] = field(default_factory=list, init=False, repr=False)

    @cached_property
    def batches(self) -> list[Batch]:
        """The batches of an epoch."""
        batching, problem = self.plan.batching, self.problem
        hops = sparse_products(self.choice, problem.graph) if batching.wants_hops else 0
        return batching.batches(problem.graph, problem.split.train, hops=hops, seed=self.settings.seed)

    @property
    def sharing(self) -> Sharing:
        """Who has what, decided once. All ranks must ask, for rank 0 decides."""
        # Not cached_property: its lock would be held while this rank waits for others.
        if not self._decided:
            self._decided.append(self._sharing())
        return self._decided[0]

    def decide(self, placed: Placed | None) -> None:
        """Who has what, where somebody else has decided it."""
        graph, dtype = self.problem.graph, self.settings.dtype
        self._decided[:] = [Sharing(graph, self.plan, self.comm, placed, device=self.device, dtype=dtype)]

    def _sharing(self) -> Sharing:
        graph, split = self.problem.graph, self.problem.split
        together = [batch.times for batch in self.batches if batch.targets is None] or [split.train]
        others = [piece for part in (split.validation, split.test) for piece in pieces(part, self.plan.batching.window)]
        windows = [piece for window in (*together, *others) for piece in pieces(window, self.settings.recompute)]
        work = (lambda: self.work) if self.plan.placement.wants_work else None
        placed = place(graph, self.plan, self.comm, windows, split.train, self.settings.seed, work)
        sharing = Sharing(graph, self.plan, self.comm, placed, device=self.device, dtype=self.settings.row_dtype)
        sharing.streamed = Streamed(self.device) if self.streams else None
        sharing.room = Room.on(self.device, fits=self.fits)
        return sharing

    @cached_property
    def work(self) -> Work:
        """What the model sends and costs, for a placement that asks."""
        graph, dtype = self.problem.graph, self.settings.dtype
        loads: Loads = counted
        if self.plan.placement.wants_seconds:
            from strobe.planner import learned_loads  # only placements that ask need it

            loads = learned_loads(self.choice, graph, device=self.device, dtype=dtype, progress=self.watch)
        return work_of(self.choice, graph, self.plan.exchange, dtype, loads)

    @property
    def keeps_windows(self) -> bool:
        """Whether windows are made once and kept for all epochs."""
        batching = self.plan.batching
        return batching.decay is None and batching.sampling is None and not self.has_at_hand

    @property
    def has_at_hand(self) -> bool:
        """Whether training reads nothing but what this rank keeps of the graph."""
        shares = self.comm.num_ranks > 1 and "inputs at hand" in self.plan.exchange.gives
        return shares or self.plan.batching.drawing is not None

    @cached_property
    def at_hand(self) -> AtHand:
        """What this rank keeps of the training snapshots. Who has what must be decided already."""
        exchange, reads = self.plan.exchange.structure, reading(self.choice, self.problem.graph)
        reads = replace(reads, hops=exchange.keeps(reads.hops))
        own = self._decided[0].own()
        cache = Cache(self.problem.graph, self.problem.split.train, own, reads, self.settings.dtype)
        exchange.check_kept(cache.predicted_bytes(), free_bytes(self.device), reads.hops)
        return AtHand(cache.build(), own, self.problem, self.device)

    def windows(self, times: range) -> list[Window]:
        return cut(self.sharing, times, self.plan.batching.window, self.settings.recompute)

    def evaluation_batches(self, times: range) -> list[Batch] | None:
        """The batches that score snapshots ``times`` from a bounded history; None: states are carried from the first
        snapshot on."""
        history = self.settings.eval_history
        if history == "auto":
            return self.plan.batching.evaluation_batches(times)
        return None if history == "all" else windows_ending_with(times, history)

    def evaluation_windows(self, times: range, known: Iterable[Window] | None = None) -> Iterator[Window]:
        """The windows that score snapshots ``times``, one at a time, each released before the next is made.

        Args:
            times: the snapshots that are scored.
            known: windows of all snapshots before ``times``, a part, where the caller has kept them.
        """
        batches, segment = self.evaluation_batches(times), self.settings.recompute
        if batches is not None:
            return (window_of(self.sharing, batch, segment) for batch in batches)
        # States are carried through all parts, cut as in training, so that the same numbers come out.
        split, start = self.problem.split, 0 if known is None else times.start
        parts = [split.train, split.validation, split.test, range(split.test.stop, len(self.problem.graph))]
        read = [range(part.start, min(part.stop, times.stop)) for part in parts if start <= part.start < times.stop]
        made = (stream(self.sharing, part, self.plan.batching.window, segment) for part in read)
        return chain(() if known is None else known, chain.from_iterable(made))

    def validation_windows(self, training: list[Window] | None = None) -> list[Window]:
        """The windows that score the validation part, to be kept for all epochs. ``training``: windows of the training
        part whose states are carried on, where there are such."""
        split = self.problem.split
        batches = self.evaluation_batches(split.validation)
        if batches is not None:
            return [window_of(self.sharing, batch, self.settings.recompute) for batch in batches]
        before = self.windows(split.train) if training is None else training
        return [*before, *self.windows(split.validation)]

    def alone(self) -> Job:
        """The same on one rank: what is done with a run once it is trained."""
        return replace(self, comm=Alone())

    def make(self) -> tuple[nn.Module, nn.Module]:
        """A fresh model and its head, on the device; the same for the same seed."""
        seed_all(self.settings.seed)
        features = self.problem.graph.features
        assert features is not None  # every task sees to that
        model = self.choice.make(features.shape[0])
        head = self.problem.head(model.width)  # type: ignore[arg-type]
        return model.to(self.device, self.settings.dtype), head.to(self.device, self.settings.dtype)

    def to_json(self) -> dict[str, Any]:
        """What ``config.json`` keeps."""
        versions = {"strobe": strobe.__version__, "torch": torch.__version__, "numpy": np.__version__}
        return {
            "name": f"{self.choice.name} on {self.source.name}",
            "graph": self.source.origin,
            "fingerprint": fingerprint(self.source.graph),
            "model": self.choice.to_json(),
            "task": task_json(self.task),
            "problem": self.problem.state(),
            "settings": self.settings.to_json(),
            "plan": self.plan.to_json(),
            "ranks": self.comm.num_ranks,
            "versions": versions | {"python": platform.python_version()},
            "machine": {"device": str(self.device), "threads": self.threads, "cores": os.cpu_count()},
        }


@dataclass(frozen=True)
class Given:
    """What a user said; None is left open."""

    graph: GraphLike | Saved | None = None
    model: ModelLike | None = None
    task: str | Task | None = None
    model_options: Mapping[str, Any] | None = None
    settings: Settings | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    data_dir: str | os.PathLike[str] | None = None
    plan: Plan | str | None = None
    problem: dict[str, Any] | None = None  # what another rank has fitted already


def choose(
    given: Given,
    earlier: dict[str, Any] | None,
    watch: Progress,
    comm: Comm | None = None,
    *,
    num_ranks: int | None = None,
) -> Job:
    """The job a user asked for. What is left open comes from the run that is resumed, if one is.

    ``num_ranks`` checks the plan for so many where they are yet to be started.
    """
    check_address_space(MIN_ADDRESS_SPACE, "a run")
    settings = _settings(given, earlier)
    comm = Alone() if comm is None else comm
    plan = _plan(given, earlier, settings)
    plan.check(num_ranks or comm.num_ranks)
    device, threads = choose_device(settings.device), choose_threads(settings.threads)
    choose_arithmetic(device, tf32=settings.precision in ("tf32", "bf16"), deterministic=settings.deterministic)
    if device.type == "cuda" and not triton.available():
        watch.note("Triton is not installed, so plain torch runs on the GPU, several times slower")
    if device.type == "cpu" and native.library() is None:
        watch.note("the CPU kernels are not built, so plain torch runs: python -m strobe.ops.native.build makes them")
    choice = _model(given, earlier)
    source = _source(given, earlier, watch)
    said = given.task is not None or earlier is None
    task = choose_task(given.task if said else make_task(**earlier["task"]), source.graph)  # type: ignore[index]
    if earlier is not None:
        _agree(earlier, source, choice, task, settings, plan)
    watch.stage("fitting to the training snapshots", 0, None)
    known = given.problem if earlier is None else earlier["problem"]
    if known is None and settings.fit is not None:
        known = task.bind(source.graph[: settings.fit], seed=settings.seed).state()
    with nullcontext() if earlier is None else restoring("the run's config.json"):
        problem = task.bind(plan.store.keep(source.graph), seed=settings.seed, state=known)
    if problem.note is not None and earlier is None and given.problem is None:
        watch.note(problem.note)
    if problem.asks_pairs and (plan.batching.wants_hops or "inputs at hand" in plan.exchange.gives):
        axis, chosen = ("batching", plan.batching) if plan.batching.wants_hops else ("exchange", plan.exchange)
        raise OptionError(
            f"{axis} {chosen} has all that single nodes ask for, not the other end of a pair: take batching full or "
            "windows, and exchange structure halo"
        )
    job = Job(
        source=source,
        choice=choice,
        task=task,
        problem=problem,
        settings=settings,
        plan=plan,
        comm=comm,
        device=device,
        threads=threads,
        watch=watch,
    )
    if settings.keep == "host":
        _refuse_unless_kept(job, num_ranks or comm.num_ranks, "windows wait in the host's memory", "--keep")
    if settings.precision == "bf16":
        _refuse_unless_kept(job, num_ranks or comm.num_ranks, "rows are stored in 16 bits", "--precision")
    return job


def _refuse_unless_kept(job: Job, num_ranks: int, what: str, option: str) -> None:
    """Raises where not one rank alone makes all windows and keeps them."""
    if num_ranks > 1:
        raise OptionError(f"{what} where one rank has all windows: leave out {option} or --ranks")
    if not job.keeps_windows:
        raise OptionError(
            f"{what} where windows are kept, and batching {job.plan.batching} makes them when they are needed: leave "
            f"out {option}"
        )


Step = dict[int, Window]
"""Windows of a step that one rank runs, by the number of their batch."""


@dataclass(frozen=True)
class Prepared:
    """The windows of this rank: those of each step of an epoch, and those that training is judged by.

    ``validation`` are the windows that score the validation part: of all snapshots up to its end, with states that are
    carried on, or of a bounded history. Where batches are ``drawn``, windows ``slide``, or targets are ``sampled``,
    there are no steps yet.
    """

    steps: list[Step]
    validation: Iterable[Window]
    drawn: Drawn | None = None
    sliding: Sliding | None = None
    sampled: SampledSteps | None = None

    @property
    def made_later(self) -> Drawn | Sliding | SampledSteps | None:
        """Who makes windows while training goes on, if anybody does."""
        return self.drawn or self.sliding or self.sampled

    @property
    def num_steps(self) -> int:
        """Steps of an epoch."""
        return len(self.steps) if self.made_later is None else self.made_later.num_steps


@dataclass(frozen=True)
class _Streamed:
    """Windows that are made whenever they are gone through, and let go of one by one."""

    job: Job

    def __iter__(self) -> Iterator[Window]:
        return self.job.evaluation_windows(self.job.problem.split.validation)


def prepared(job: Job, order: Steps, watch: Progress) -> Prepared:
    """All windows, with all that they need."""
    split = job.problem.split
    if job.plan.batching.decay is not None:
        return Prepared([], _Streamed(job), sliding=Sliding(job))
    if job.plan.batching.sampling is not None:
        _ = job.sharing
        return Prepared([], _Streamed(job), sampled=SampledSteps(job))
    if job.has_at_hand:
        _ = job.sharing
        watch.stage("keeping what this rank's nodes read", 0, None)
        _ = job.at_hand
    steps = _windows(job, order, {})
    training = [window for step in steps for window in step.values()]
    goes_on = all(batch.carries for batch in job.batches) and not job.has_at_hand
    validation = job.validation_windows(training if goes_on else None)
    total = len(split.train) + len(split.validation)
    done = 0
    watch.stage("preparing snapshots", done, total)
    scored = [window for window in validation if window[-1].times.stop > split.validation.start]
    for snapshots in _loaded(job, training, scored):
        done = min(done + snapshots, total)  # windows may overlap
        watch.stage("preparing snapshots", done, total)
    drawn = None if job.plan.batching.drawing is None else Drawn(job)
    return Prepared(steps, validation, drawn)


def reordered(job: Job, windows: Prepared, order: Steps) -> Prepared:
    """The same in another order: this rank may get windows that others had."""
    known = {number: window for step in windows.steps for number, window in step.items()}
    steps = _windows(job, order, known)
    new = [window for step in steps for number, window in step.items() if number not in known]
    for _ in _loaded(job, new, []):
        pass
    return replace(windows, steps=steps)


def _windows(job: Job, order: Steps, known: Step) -> list[Step]:
    """This rank's windows of every step; what is not known is made."""

    def window(number: int) -> Window:
        if number in known:
            return known[number]
        batch = job.batches[number]
        return job.at_hand.window(batch) if job.has_at_hand else window_of(job.sharing, batch, job.settings.recompute)

    return [{number: window(number) for number in step[job.comm.rank]} for step in order]


def _loaded(job: Job, training: list[Window], validation: list[Window]) -> Iterator[int]:
    """Reads and asks ahead what needs no model; gives the snapshots done."""
    problem = job.problem
    for window, learns in [*((each, True) for each in training), *((each, False) for each in validation)]:
        for segment in window:
            segment.cells.arrive()
            if segment.cells.keeps_features_apart:
                segment.cells.check_features()
            else:
                _ = segment.cells.x
            _ = segment.cells.sequences
            if learns and not problem.changes_with_epoch:
                segment.cells.arrive(asked(problem, segment, problem.split.train, 0))
            elif not learns:
                for t in segment.times if segment.asked is None else segment.asked:
                    asked_at(problem, segment, t)
            yield len(segment.times)


def _plan(given: Given, earlier: dict[str, Any] | None, settings: Settings) -> Plan:
    """The plan that was given, that of the earlier run, or our own; ``window`` says how it is cut."""
    if given.plan is None:
        plan = Plan() if earlier is None else Plan.from_json(earlier["plan"])
    else:
        plan = preset(given.plan) if isinstance(given.plan, str) else given.plan
        if not isinstance(plan, Plan):
            raise OptionError(f"a plan is a Plan or the name of a preset, not {plan!r}")
    return plan if settings.window is None else replace(plan, batching=plan.batching.cut(settings.window))


def _settings(given: Given, earlier: dict[str, Any] | None) -> Settings:
    start = Settings() if earlier is None else Settings().changed(earlier["settings"])
    return (start if given.settings is None else given.settings).changed(given.changes)


def _source(given: Given, earlier: dict[str, Any] | None, watch: Progress) -> Source:
    watch.stage("reading the graph", 0, None)
    if given.graph is not None:
        return open_source(given.graph, given.data_dir, watch.stage)
    if earlier is None:
        raise OptionError("say which graph to train on")
    return reopen(earlier["graph"], watch.stage)


def _model(given: Given, earlier: dict[str, Any] | None) -> ModelChoice:
    model, options = given.model, given.model_options
    if model is None:
        if earlier is None:
            raise OptionError("say which model to train")
        if not earlier["model"]["by_name"]:
            raise OptionError(f"the run's model, {earlier['model']['name']}, is none of Strobe's own: give it again")
        model = earlier["model"]["name"]
    if earlier is not None and isinstance(model, str) and model == earlier["model"]["name"]:
        options = earlier["model"]["options"] | dict(options or {})
    return choose_model(model, options)


def _agree(
    earlier: dict[str, Any], source: Source, choice: ModelChoice, task: Task, settings: Settings, plan: Plan
) -> None:
    """Refuses to resume a run with something else than it was made of, naming all that differs.

    A run that is only opened, on another graph, says so by having no fingerprint.
    """
    new = {
        "graph": {} if earlier["fingerprint"] is None else fingerprint(source.graph),
        "model": choice.to_json()["options"] | {"name": choice.name},
        "task": task_json(task),
        "setting": settings.fixed(),
        "plan": {axis: str(value) for axis, value in plan.axes()},
    }
    old = {
        "graph": earlier["fingerprint"] or {},
        "model": earlier["model"]["options"] | {"name": earlier["model"]["name"]},
        "task": earlier["task"],
        "setting": Settings().changed(earlier["settings"]).fixed(),
        "plan": {axis: str(value) for axis, value in Plan.from_json(earlier["plan"]).axes()},
    }
    differ = [
        f"{what} {name} was {old[what].get(name)!r} and is {new[what].get(name)!r}"
        for what in new
        for name in sorted(old[what].keys() | new[what].keys())
        if old[what].get(name) != new[what].get(name)
    ]
    if differ:
        raise OptionError(f"the run cannot go on as something else: {'; '.join(differ)}. Start another (--out).")
