"""How good a model is: metrics of a part of time, beside what answers that need no learning score there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from strobe.engine.asked import Asked
from strobe.engine.job import Job
from strobe.engine.passes import answers
from strobe.engine.source import GraphLike
from strobe.engine.windows import Window
from strobe.errors import OptionError, UnknownNameError
from strobe.ops.csr import IntArray
from strobe.tasks.base import Examples, Metrics, Problem
from strobe.tasks.split import PARTS

if TYPE_CHECKING:
    from strobe.engine.choice import ModelLike
    from strobe.engine.run import Run

ALL = "all"
_Said = tuple[int, IntArray, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any] | None]
"""t, which of its examples, answers, what was to be said, what answers start from."""


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


def score(
    model: nn.Module, head: nn.Module, job: Job, windows: Iterable[Window], part: range, problem: Problem | None = None
) -> Metrics:
    """Metrics of a part, from the windows that score it (``Job.evaluation_windows``).

    Rank 0 puts together what all ranks say, in the order one rank would have said it, and tells them what it scored.
    """
    problem = job.problem if problem is None else problem
    model.eval()
    head.eval()
    with job.comm.ledger.phase("evaluate"):
        said = list(answers(model, head, problem, windows, part))
        if job.sharing.is_shared:
            heard = job.comm.collect([_plain(*each) for each in said], kind="answers")
            with job.comm.rank_0_alone("score"):
                found = problem.metrics(*_together(heard)) if job.comm.rank == 0 else None
        else:  # this rank has said it all
            found = problem.metrics([answer for _, answer, _ in said], [asked.examples for _, _, asked in said])
        metrics: Metrics = job.comm.share(found, kind="answers")
        return metrics


def _plain(t: int, answer: Tensor, asked: Asked) -> _Said:
    examples = asked.examples
    at = np.arange(len(asked)) if asked.at is None else asked.at
    base = None if examples.base is None else examples.base.cpu().numpy()
    return t, at, answer.numpy(), examples.y.cpu().numpy(), base


def _together(heard: list[list[_Said]]) -> tuple[list[Tensor], list[Examples]]:
    """Answers and examples of each snapshot, those of all ranks in one order."""
    by_time: dict[int, list[_Said]] = {}
    for each in (each for said in heard for each in said):
        by_time.setdefault(each[0], []).append(each)
    answered, asked = [], []
    for _, parts in sorted(by_time.items()):
        order = np.argsort(np.concatenate([part[1] for part in parts]), kind="stable")
        answer, y = (torch.from_numpy(np.concatenate([part[k] for part in parts])[order]) for k in (2, 3))
        bases = [part[4] for part in parts if part[4] is not None]
        base = torch.from_numpy(np.concatenate(bases)[order]) if bases else None
        answered.append(answer)
        asked.append(Examples(None, y, base))
    return answered, asked


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
    if opened.online:
        raise OptionError(
            "this run judged each snapshot before it learnt from it, and no part of its graph is left to score: what "
            "it scored then is in its result.json. Give another graph (graph, --graph)"
        )
    problem = opened.job.problem
    if part == ALL:
        problem = problem.all_test()
    times = problem.split.part("test" if part == ALL else part)
    found = score(opened.model, opened.head, opened.job, opened.job.evaluation_windows(times), times, problem)
    baselines = problem.baselines("test" if part == ALL else part)
    return Evaluation(part=part, snapshots=(times.start, times.stop), metrics=found, baselines=baselines)
