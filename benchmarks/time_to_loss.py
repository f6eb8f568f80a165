"""Ways to train, one after the other in the same processes: how far each is after how many seconds of training.

Seconds are those of training alone: placing, preparing and scoring do not count, for anyone. A run ends when its loss
has not fallen for ten scores, or when its seconds are spent; what it is scored by are snapshots that it does not learn
from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter
from typing import Any, NamedTuple

from strobe.api import SERVICES
from strobe.comm import Comm, run_ranks
from strobe.comm.base import CommError
from strobe.engine import Progress
from strobe.engine.inputs.resolve import TrainRequest
from strobe.engine.launch.processes import OutputConfig
from strobe.engine.train import train_on_rank
from strobe.errors import StrobeError
from strobe.ops.runtime.buffers import POOL
from strobe.ops.runtime.memory_trace import AllocationTracker
from strobe.plan import Plan
from strobe.tasks import Task

PATIENCE = 10
"""Scores without a lower loss after which a run has converged, as in the paper."""

FALL = 1e-3
"""A loss that is lower by a smaller share is not lower."""

DEADLINE_S = 600.0
_LONGER = 1.5
_NEVER = 10**6


class Point(NamedTuple):
    """A score: seconds and steps of training before it, and the loss on snapshots held out."""

    seconds: float
    step: int
    loss: float


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to train: a plan, for how long, and how often it is scored.

    ``weigh``: the bytes of a step are counted in an epoch of their own, before, which warms up, too.
    """

    name: str
    plan: Plan
    seconds: float
    every: int = 1
    weigh: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class Course:
    """How a run went: its scores, each epoch's line of the record, and the most bytes that tensors of a step had on
    rank 0. ``failed`` says why there is nothing."""

    points: list[Point] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)
    step_bytes: int = 0
    prepare_s: float = 0.0
    failed: str = ""

    @property
    def settled(self) -> list[Point]:
        """Scores that count: as low as a score and the next were both."""
        if len(self.points) < 2:
            return self.points
        return [Point(one.seconds, one.step, max(one.loss, two.loss)) for one, two in pairwise(self.points)]

    @property
    def best(self) -> float:
        return min((point.loss for point in self.settled), default=math.nan)

    @property
    def seconds(self) -> float:
        """Seconds of training in all."""
        return float(sum(line["train_s"] for line in self.lines))

    @property
    def steps(self) -> int:
        return int(self.lines[-1]["step"]) if self.lines else 0

    @property
    def step_s(self) -> float:
        """Seconds of a step, the first epoch left out where there are more: everything warms up."""
        warm = self.lines[0] if len(self.lines) > 1 else {"step": 0, "train_s": 0.0}
        return (self.seconds - warm["train_s"]) / max(self.steps - warm["step"], 1)

    @property
    def converged(self) -> bool:
        return has_converged(self.points)

    def time_to(self, loss: float) -> float | None:
        """Seconds until scores were as low; None if they never were."""
        return next((point.seconds for point in self.settled if point.loss <= loss), None)


def has_converged(points: Sequence[Point], patience: int = PATIENCE, fall: float = FALL) -> bool:
    """Whether the loss has not fallen for as many scores as one has patience for, and for a third of the time: scores
    may be close to each other."""
    lowest, at, since = math.inf, 0.0, 0
    for point in points:
        if point.loss < lowest * (1 - fall):
            lowest, at, since = point.loss, point.seconds, 0
        else:
            since += 1
    return since >= patience and points[-1].seconds >= at * _LONGER


class EnoughError(Exception):
    """A run has been watched for long enough."""


class Watch(Progress):
    """Writes down how a run goes, on every rank, and ends it on all of them when rank 0 has seen enough."""

    def __init__(self, comm: Comm, seconds: float, metric: Callable[[Mapping[str, float]], float]) -> None:
        self.course = Course()
        self._comm, self._seconds, self._metric = comm, seconds, metric
        self._began = perf_counter()

    def begin(self, info: dict[str, Any]) -> None:
        self.course.prepare_s = perf_counter() - self._began

    def epoch(self, line: dict[str, Any]) -> None:
        course = self.course
        course.lines.append(line)
        if "validation" in line:  # of this epoch's weights, or of an earlier one's, where they are judged beside
            judged = line.get("evaluated_epoch", line["epoch"])
            before = [each for each in course.lines if each["epoch"] <= judged]
            seconds = sum(each["train_s"] for each in before)
            course.points.append(Point(seconds, before[-1]["step"], self._metric(line["validation"])))
        if self._comm.broadcast_object(course.seconds >= self._seconds or course.converged, kind="setup"):
            raise EnoughError


class _Weighing(Progress):
    """Counts the bytes of tensors from when training begins until its first epoch ends.

    Large results come from memory that is kept, where making them is not seen: during the measurement they do not.
    """

    def __init__(self) -> None:
        self.counting = AllocationTracker()
        self._while = ExitStack()

    def begin(self, info: dict[str, Any]) -> None:
        self._while.enter_context(POOL.pause())
        self._while.enter_context(self.counting)

    def epoch(self, line: dict[str, Any]) -> None:
        self._while.close()
        raise EnoughError


@dataclass(frozen=True, kw_only=True)
class Race:
    """A graph that is saved, what is asked of it, a model, and what the runs share. ``problem`` is what was fitted."""

    graph: str
    task: Task
    model: str
    model_options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    problem: dict[str, Any] | None = None
    metric: str = "mse"

    def run(self, ways: Sequence[Way], ranks: int, heard: Callable[[str, Course], None]) -> dict[str, Course]:
        """The ways' courses by name. Ranks have one thread each. ``heard`` is told of each when it is over."""

        def work(comm: Comm, tell: Callable[[Any], None]) -> dict[str, Course]:
            courses = {}
            for way in ways:
                courses[way.name] = self._one(way, comm)
                if comm.rank == 0:
                    tell((way.name, courses[way.name]))
            return courses if comm.rank == 0 else {}

        def on_event(rank: int, event: tuple[str, Course]) -> None:
            heard(*event)

        return run_ranks(work, ranks, threads=1, deadline_s=DEADLINE_S, on_event=on_event)[0]

    def _one(self, way: Way, comm: Comm) -> Course:
        watch = Watch(comm, way.seconds, self._loss)
        try:
            if way.weigh:
                weighing = _Weighing()
                self._train(way, comm, weighing, evaluate_every=_NEVER)
                watch.course.step_bytes = weighing.counting.peak_bytes
            self._train(way, comm, watch, evaluate_every=way.every)
        except CommError:
            raise
        except StrobeError as error:  # ranks raise it together
            watch.course.failed = str(error)
        return watch.course

    def _train(self, way: Way, comm: Comm, watch: Progress, evaluate_every: int) -> None:
        changes: dict[str, Any] = {**self.settings, **way.settings, "threads": 1, "patience": 0}
        changes |= {"epochs": _NEVER, "evaluate_every": evaluate_every}
        given = TrainRequest(
            self.graph,
            self.model,
            self.task,
            self.model_options,
            changes=changes,
            plan=way.plan,
            problem=self.problem,
            services=SERVICES,
        )
        comm.ledger.clear()
        with suppress(EnoughError):
            train_on_rank(given, OutputConfig(), watch, comm)

    def _loss(self, metrics: Mapping[str, float]) -> float:
        """The metric as something that falls."""
        return 1 - metrics[self.metric] if self.metric == "accuracy" else metrics[self.metric]
