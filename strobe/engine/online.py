"""A run that learns from snapshots as they arrive: places, judges, learns from and keeps each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from strobe.comm import Comm
from strobe.engine.arrivals import Arrivals
from strobe.engine.checkpoint import State
from strobe.engine.diverged import DivergedError
from strobe.engine.evaluate import score
from strobe.engine.job import Given, Job, choose
from strobe.engine.machine import peak_bytes, random_state
from strobe.engine.moments import ledgers
from strobe.engine.progress import Progress
from strobe.engine.record import ONLINE, Record
from strobe.engine.sampled import SampledSteps
from strobe.engine.source import Source
from strobe.engine.train import fresh, start, train_step
from strobe.engine.watched import Watched
from strobe.errors import InputError, OptionError
from strobe.graph import DynamicGraph
from strobe.graph.growing import Growing
from strobe.numbers import number_of
from strobe.plan import Plan
from strobe.sync import Syncing
from strobe.tasks.base import Metrics

GRAPH = "graph"
"""Where a run keeps the graph that has arrived."""


class Online:
    """A run that learns from snapshots one by one, up to a ``limit``; it begins when there are enough to fit scales to.
    ``told`` is what it remembers of their source."""

    def __init__(
        self,
        given: Given,
        earlier: dict[str, Any] | None,
        path: Path,
        record: Record,
        progress: Progress,
        comm: Comm,
        *,
        told: Mapping[str, Any],
        limit: int | None,
    ) -> None:
        assert given.settings is not None
        assert isinstance(given.plan, Plan)
        assert given.settings.fit is not None
        assert given.plan.batching.sampling is not None
        self._given, self._path, self._told = given, path, told
        self._record, self._progress, self._comm = record, progress, comm
        self._fit, self._limit = given.settings.fit, limit
        self._earlier = earlier if earlier is not None and earlier["problem"] is not None else None
        keeps = given.plan.batching.sampling.snapshots + self._fit  # answers may be known that much later
        self._arrivals = Arrivals(given.plan, comm, given.settings.seed, keeps)
        self._job: Job | None = None
        self._state: State | None = None
        self._steps: SampledSteps | None = None
        self._sync: Syncing | None = None
        self._unsaved = False

    @property
    def learnt(self) -> int:
        """How many snapshots have been learnt from."""
        return 0 if self._state is None else self._state.epoch

    @property
    def arrived(self) -> int:
        """How many snapshots have been placed."""
        return self._arrivals.count

    @property
    def enough(self) -> bool:
        return self._limit is not None and self.learnt >= self._limit

    def resume(self, graph: Growing) -> None:
        """Goes on where the run stopped."""
        if self._earlier is not None:
            self._begin(graph.open())
            self._learn_all(graph.open(self.arrived))

    def arrive(self, graph: DynamicGraph) -> None:
        """The last snapshot of a graph has arrived; all before it had."""
        self._arrivals.arrive(graph[len(graph) - 1])
        self._learn_all(graph)

    def _learn_all(self, graph: DynamicGraph) -> None:
        """Learns from all snapshots whose answers are known."""
        if len(graph) < self._fit:
            return
        if self._job is None:
            self._begin(graph)
        assert self._job is not None
        self._follow(graph)
        newest = self._job.problem.split.validation.start
        for t in range(self.learnt, newest + 1):
            if self.enough:
                return
            self._learn(graph, t, judged=len(graph) > self._fit)

    def finish(self, rows: Mapping[str, int]) -> Watched:
        """All that came of it; ``rows`` are those of the source, counted by what became of them."""
        job, state = self._job, self._state
        if job is None or state is None:
            raise OptionError(
                f"no more than {number_of(self.arrived, 'snapshot')} arrived, and scales are fitted to {self._fit}: "
                "go on when there are more, or fit them to fewer (fit, --fit)"
            )
        self._save()
        watched = replace(self._watched(job, state), rows=rows)
        self._record.finish(watched.to_json(), {ONLINE: watched.picture()})
        return watched

    def _watched(self, job: Job, state: State) -> Watched:
        return Watched(
            path=self._path,
            graph=job.source.name,
            model=job.choice.name,
            task=job.task.name,
            metric=job.problem.metric,
            higher_is_better=job.problem.higher_is_better,
            history=state.history,
            weights=state.weights(),
        )

    def _begin(self, graph: DynamicGraph) -> None:
        """Weights, and what they are trained with; from a checkpoint, where there is one."""
        given = replace(self._given, graph=graph[: self._fit] if self._earlier is None else graph)
        earlier = None if self._earlier is None else self._earlier | {"fingerprint": None}
        try:
            job = choose(given, earlier, self._progress, self._comm)
        except InputError as error:
            about = f"the first {self._fit} snapshots, to which scales are fitted (fit, --fit)"
            raise InputError(f"{error}\nThis is about {about}.") from error
        name = str(self._told.get("name", GRAPH))
        self._job = replace(job, source=Source(graph, {"path": str((self._path / GRAPH).resolve())}, name))
        told = self._job.to_json() | {"fingerprint": None, "watch": dict(self._told)}
        self._state, resumed = fresh(self._job), self._earlier is not None
        start(self._job, self._record, self._progress, self._state, resumed=resumed, config=told)
        arrived = self._comm.share(self._state.arrived, kind="setup")
        if self._earlier is not None and arrived is not None:
            self._arrivals.recall(arrived, graph)
        self._state.arrived = None
        weights = self._state.optimiser.param_groups[0]["params"]
        self._sync = self._job.plan.sync.start(weights, self._comm, self._state.optimiser, free=False)

    def _follow(self, graph: DynamicGraph) -> None:
        """The same run on a graph that has grown."""
        assert self._job is not None
        job = self._job
        problem = job.task.rebind(job.problem, graph)
        newest = len(graph) - 1 - problem.reach
        self._job = replace(job, source=replace(job.source, graph=graph), problem=problem.at(newest))
        placed = self._arrivals.placed(graph)
        self._job.decide(placed)

    def _learn(self, graph: DynamicGraph, t: int, *, judged: bool) -> None:
        """Judges the newest snapshot whose answers are known, then learns from it."""
        assert self._job is not None
        assert self._state is not None
        assert self._sync is not None
        job, state = self._job, self._state
        self._steps = SampledSteps(job) if self._steps is None else self._steps
        line: dict[str, Any] = {"epoch": t + 1, "snapshot": str(graph.times[t]), "arrived": len(graph)}
        began = perf_counter()
        if judged:
            line |= self._judged(t)
        trained = perf_counter()
        steps, loss = self._trained(t)
        state.epoch = t + 1
        before = state.history[-1]["step"] if state.history else 0
        line |= {"step": before + steps, "loss": loss, "best": None, "best_epoch": 0, "lr": job.settings.lr}
        line |= {"train_s": round(perf_counter() - trained, 6), "evaluate_s": round(trained - began, 6)}
        line |= peak_bytes(job.device)
        did, _ = ledgers(job)
        line |= did
        if not state.is_finite():
            raise DivergedError("a weight of the model", state.epoch, job.settings)
        state.history.append(line)
        self._record.epoch(line)
        self._unsaved = True
        if self._comm.share(self._record.is_due(), kind="setup"):
            self._save()
        self._progress.epoch(line)

    def rest(self) -> None:
        """Nothing has arrived: what was learnt is saved, for those who want to use it meanwhile."""
        if self._unsaved:
            self._save()

    def _judged(self, t: int) -> dict[str, Any]:
        assert self._job is not None
        assert self._state is not None
        part = range(t, t + 1)
        found: Metrics = score(self._state.model, self._state.head, self._job, self._job.evaluation_windows(part), part)
        with self._comm.rank_0_alone("evaluate"):
            baselines = self._job.problem.baselines("validation") if self._comm.rank == 0 else {}
        problem = self._job.problem
        told = {"metric": problem.metric, "higher_is_better": problem.higher_is_better}
        return {**told, "validation": found, "baselines": baselines}

    def _trained(self, t: int) -> tuple[int, float | None]:
        """The steps that were taken, and the mean loss of all examples, each before the step it led to; None without
        any."""
        assert self._job is not None
        assert self._state is not None
        assert self._steps is not None
        assert self._sync is not None
        self._state.model.train()
        self._state.head.train()
        self._sync.epoch_begins()
        total, examples, step = 0.0, 0.0, 0
        for step, mine in enumerate(self._steps.windows(self._job, range(t, t + 1), 0), 1):
            self._comm.ledger.at(t + 1, step)
            value, number, _ = train_step(self._job, self._state, self._sync, mine, None, 0)
            if not math.isfinite(value):
                raise DivergedError("the loss", t + 1, self._job.settings)
            total, examples = total + value, examples + number
            self._progress.step(t + 1, step)
        self._sync.epoch_ends()
        return step, total / examples if examples else None

    def _save(self) -> None:
        assert self._job is not None
        assert self._state is not None
        with self._comm.ledger.phase("save"):
            self._state.random = self._comm.gather(random_state(), kind="setup")
            with self._comm.rank_0_alone("checkpoint"):
                self._state.arrived = self._arrivals.remembered() if self._comm.rank == 0 else None
                self._record.save(self._state)
                self._state.arrived = None
                if self._comm.rank == 0:
                    self._record.draw({ONLINE: self._watched(self._job, self._state).picture()})
        self._unsaved = False
