"""Systems that train on one graph, each for as many steps as the others: how well, how fast, how much was computed.

Each runs in a process of its own with one thread.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.time_to_loss import DEADLINE_S, Course, Point
from strobe.api import SERVICES
from strobe.batching import Hybrid, Trapezoid
from strobe.comm import Comm, RankError, run_ranks
from strobe.comm.base import CommError
from strobe.engine import Progress
from strobe.engine.inputs.resolve import TrainRequest
from strobe.engine.launch.processes import OutputConfig
from strobe.engine.train import train_on_rank
from strobe.errors import StrobeError
from strobe.plan import Plan
from strobe.presets import preset
from strobe.schedule import InOrder
from strobe.tasks import Task

HIDDEN, WIDE = 16, 64
"""Columns of models: of those that train for long, and of those that are timed and weighed."""

WINDOW = 8
"""Snapshots of a step, for everybody: the paper's."""

OURS, FULL, RECENT, CUT, DBOS, DYNAHB = "flare", "full history", "recent-only", "K = 2", "dbos", "dynahb"
_DRAWN = 20
"""Steps of an epoch of batches that are drawn."""

_SCORES = 6
"""How often a run is scored, about."""


def plan_of(system: str) -> Plan:
    """The plan of a system by its name."""
    return PLANS[system]()


def sliding(full: int, decayed: int, keep: float = 1.0) -> Plan:
    """Our preset with another window."""
    return replace(preset("flare"), batching=Trapezoid(full=full, decayed=decayed, min_keep=keep))


def _drawn() -> Plan:
    plan = preset("dynahb", async_evaluation=False)
    assert isinstance(plan.batching, Hybrid)
    return replace(plan, batching=replace(plan.batching, steps_per_epoch=_DRAWN))


PLANS: dict[str, Callable[[], Plan]] = {
    OURS: lambda: preset("flare"),
    FULL: lambda: sliding(WINDOW, 0),
    RECENT: lambda: replace(preset("psg", size=2, stride=1), schedule=InOrder(per_step=1)),
    CUT: lambda: sliding(2, 0),
    DBOS: lambda: preset("dbos", size=WINDOW),
    DYNAHB: _drawn,
}
"""Full history keeps all of the window; recent-only has two snapshots and begins with fresh states, K = 2 with those
of the step before."""


def epochs_of(system: str, epochs: int, snapshots: int) -> int:
    """Epochs of ``system`` with as many steps as ``epochs`` epochs of sliding windows over ``snapshots`` snapshots."""
    steps = {DBOS: -(-snapshots // WINDOW), DYNAHB: _DRAWN}.get(system, snapshots)
    return max(1, round(epochs * snapshots / steps))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended. ``test``: the error of the weights that were best in validation; ``course``: its epochs and
    scores. ``failed`` says why there is nothing."""

    system: str
    test: float = 0.0
    tests: tuple[float, ...] = ()
    """Where there are several: with each seed. All else is the first one's."""
    best_epoch: int = 0
    cells: int = 0
    """That the first rank computed, in all steps."""
    course: Course = field(default_factory=Course)
    failed: str = ""

    @property
    def pass_s(self) -> float:
        """Seconds of an epoch's training, the median; the first is left out: everything warms up."""
        lines = self.course.lines[1:] or self.course.lines
        return float(statistics.median(line["train_s"] for line in lines))

    @property
    def rows(self) -> float:
        """Cells that the first rank computes in a step, the mean."""
        return self.cells / max(self.course.steps, 1)

    def to_record(self) -> dict[str, Any]:
        """For the record."""
        if self.failed:
            return {"failed": self.failed}
        return {
            "test_mse": self.test,
            "test_mse_by_seed": self.tests or (self.test,),
            "lowest_validation_mse": self.course.best,
            "best_epoch": self.best_epoch,
            "epochs": len(self.course.lines),
            "steps": self.course.steps,
            "pass_s": [line["train_s"] for line in self.course.lines],
            "rows_a_step": self.rows,
            "curve": [[round(at, 3), step, mse] for at, step, mse in self.course.points],
        }


@dataclass(frozen=True, kw_only=True)
class Contest:
    """A graph that is saved, what is asked of it, a model, and what all runs share. ``problem`` is what was fitted."""

    graph: str
    task: Task
    model: str
    epochs: int
    snapshots: int
    problem: dict[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def run(self, system: str) -> Outcome:
        """Trains with a system in a process of its own."""
        heard: list[Outcome] = []

        def work(comm: Comm, tell: Callable[[Any], None]) -> None:
            tell(self._one(system, comm))

        try:
            run_ranks(work, 1, threads=1, deadline_s=DEADLINE_S, on_event=lambda rank, outcome: heard.append(outcome))
        except RankError as error:
            return Outcome(system=system, failed=str(error).splitlines()[0])
        return heard[0]

    def _one(self, system: str, comm: Comm) -> Outcome:
        epochs = epochs_of(system, self.epochs, self.snapshots)
        how = {"epochs": epochs, "evaluate_every": max(1, epochs // _SCORES), "patience": 0, "threads": 1}
        given = TrainRequest(
            self.graph,
            self.model,
            self.task,
            {"hidden": HIDDEN},
            changes={**self.settings, **how},
            plan=plan_of(system),
            problem=self.problem,
            services=SERVICES,
        )
        comm.ledger.clear()
        counting = Counting(comm)
        try:
            with counting:
                run = train_on_rank(given, OutputConfig(), Progress(), comm)
        except CommError:
            raise
        except StrobeError as error:  # ranks raise it together
            return Outcome(system=system, failed=str(error).splitlines()[0])
        course = Course(points=list(_scores(run.history)), lines=run.history)
        return Outcome(
            system=system, test=run.test["mse"], best_epoch=run.best_epoch, cells=counting.cells, course=course
        )


class Counting:
    """Adds up the cells that a rank computes: one rank alone does not report its ledger."""

    def __init__(self, comm: Comm) -> None:
        self._ledger, self._count, self.cells = comm.ledger, comm.ledger.count, 0

    def __enter__(self) -> Counting:
        def count(**what: int) -> None:
            self.cells += what.get("cells", 0)
            self._count(**what)

        self._ledger.count = count  # type: ignore[method-assign]
        return self

    def __exit__(self, *error: object) -> None:
        self._ledger.count = self._count  # type: ignore[method-assign]


def _scores(lines: Sequence[Mapping[str, Any]]) -> list[Point]:
    found, seconds = [], 0.0
    for line in lines:
        seconds += line["train_s"]
        if "validation" in line:
            found.append(Point(seconds, line["step"], line["validation"]["mse"]))
    return found
