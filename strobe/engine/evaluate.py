"""How good a model is: metrics of a part of time, beside what answers that need no learning score there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

from torch import nn

from strobe.engine.passes import answers
from strobe.engine.source import GraphLike
from strobe.engine.windows import Window
from strobe.errors import UnknownNameError
from strobe.tasks.base import Metrics, Problem
from strobe.tasks.split import PARTS

if TYPE_CHECKING:
    from strobe.engine.choice import ModelLike
    from strobe.engine.run import Run

ALL = "all"


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Metrics of a part, and those of trivial answers by name."""

    part: str
    snapshots: tuple[int, int]
    metrics: Metrics
    baselines: dict[str, Metrics]

    def to_json(self) -> dict[str, Any]:
        return {
            "part": self.part,
            "snapshots": list(self.snapshots),
            "metrics": self.metrics,
            "baselines": self.baselines,
        }


def score(model: nn.Module, head: nn.Module, problem: Problem, windows: Iterable[Window], part: range) -> Metrics:
    """Metrics of a part; windows begin with the first snapshot of all, so that states are what they would be."""
    model.eval()
    head.eval()
    said = [(answer, examples) for _, answer, examples in answers(model, head, problem, windows, part)]
    return problem.metrics([answer for answer, _ in said], [examples for _, examples in said])


def evaluate(
    run: Run | str | PathLike[str],
    part: str = "test",
    *,
    graph: GraphLike | None = None,
    model: ModelLike | None = None,
) -> Evaluation:
    """Metrics of a run (or its directory), with its best weights, on a part of its graph or of another one.

    ``all`` asks about every snapshot of the graph that has an answer: what to ask of a graph the run never saw.
    """
    from strobe.engine.run import Run, open_run

    if part not in (*PARTS, ALL):
        raise UnknownNameError("part", part, (*PARTS, ALL))
    opened = run if isinstance(run, Run) and graph is None else open_run(run, graph=graph, model=model)
    problem = opened.job.problem
    if part == ALL:
        problem = problem.all_test()
    times = problem.split.part("test" if part == ALL else part)
    before = [range(0)] if part == ALL else [problem.split.part(name) for name in PARTS[: PARTS.index(part)]]
    found = score(opened.model, opened.head, problem, opened.job.stream(*before, times), times)
    baselines = problem.baselines("test" if part == ALL else part)
    return Evaluation(part=part, snapshots=(times.start, times.stop), metrics=found, baselines=baselines)
