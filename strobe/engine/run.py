"""A finished run: its model with the best weights, how it went, and what it scored."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from strobe.engine.checkpoint import Weights, best_weights, load_weights
from strobe.engine.choice import ModelLike
from strobe.engine.curve import learning_curve_svg
from strobe.engine.job import Given, Job, choose
from strobe.engine.progress import Progress
from strobe.engine.record import read_config, read_lines, read_result
from strobe.engine.settings import Settings
from strobe.engine.source import GraphLike, fingerprint, open_source
from strobe.engine.summary import run_summary
from strobe.errors import OptionError
from strobe.tasks.base import Metrics, Problem

if TYPE_CHECKING:
    from pyarrow import Table

Scores = dict[str, Metrics]


@dataclass(kw_only=True)
class Run:
    """What training gives back. ``validation`` and ``test`` are metrics at the best epoch, with the best weights.

    ``baselines`` has, by part and name, what answers that need no learning score; ``ranks`` the ledger of every rank
    over all epochs, where there were several; ``window`` what a step computes of its window, where windows decay;
    ``online`` that it learnt from every snapshot of its graph while they arrived.
    """

    job: Job
    model: nn.Module
    head: nn.Module
    history: list[dict[str, Any]]
    best_epoch: int
    validation: Metrics
    test: Metrics
    baselines: dict[str, Scores]
    seconds: float = 0.0
    memory: dict[str, int] | None = None
    ranks: list[dict[str, Any]] = field(default_factory=list)
    window: dict[str, Any] | None = None
    online: bool = False
    path: Path | None = None

    @property
    def problem(self) -> Problem:
        return self.job.problem

    @property
    def settings(self) -> Settings:
        return self.job.settings

    @property
    def epochs(self) -> int:
        """Epochs trained, in this process or one before it."""
        return int(self.history[-1]["epoch"]) if self.history else 0

    @property
    def stopped_early(self) -> bool:
        return self.epochs < self.settings.epochs

    def predict(self, part: str = "next", *, embeddings: bool = False) -> Table:
        """Predictions as an Arrow table: of a part, or for what comes after the last snapshot (``next``)."""
        from strobe.engine.predict import predictions

        return predictions(self, part, embeddings=embeddings)

    def summary(self) -> str:
        """What came out, in a few lines for people."""
        return run_summary(self.to_json())

    def curve(self) -> str:
        """The learning curve as a picture (SVG)."""
        return learning_curve_svg(self.to_json(), self.history)

    def to_json(self) -> dict[str, Any]:
        """What ``result.json`` keeps."""
        problem = self.job.problem
        return {
            "run": None if self.path is None else str(self.path),
            "graph": self.job.source.name,
            "model": self.job.choice.name,
            "task": self.job.task.name,
            "metric": problem.metric,
            "higher_is_better": problem.higher_is_better,
            "epochs": self.epochs,
            "stopped_early": self.stopped_early,
            "best_epoch": self.best_epoch,
            "validation": self.validation,
            "test": self.test,
            "baselines": self.baselines,
            "parameters": sum(p.numel() for part in (self.model, self.head) for p in part.parameters()),
            "seconds": round(self.seconds, 3),
            "seconds_per_epoch": _median([line["train_s"] for line in self.history]),
            "device": str(self.job.device),
            "threads": self.job.threads,
            **(self.memory or {}),
            **({} if self.window is None else {"window": self.window}),
            **({"plan": self.job.plan.to_json(), "ranks": self.ranks} if self.ranks else {}),
        }


def open_run(
    run: Run | str | PathLike[str],
    *,
    graph: GraphLike | None = None,
    model: ModelLike | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> Run:
    """The run of a directory with its best weights; ``graph`` puts it on another graph with the same features.

    ``model`` is needed only where the run's has no name that Strobe knows.
    """
    if isinstance(run, Run):
        return _moved(run, graph)
    path = Path(run)
    config = read_config(path)
    if config["problem"] is None:
        raise OptionError(
            f"the run at {path} has not learnt from a snapshot yet: go on with it (strobe watch --resume)"
        )
    given = Given(graph, model, changes={} if device is None else {"device": device})
    same = config if graph is None else config | {"fingerprint": None}  # another graph may differ
    job = choose(given, same, progress or Progress())
    online = "watch" in config and graph is None
    return replace(_assembled(path, job, *best_weights(path)), online=online)


def _assembled(path: Path, job: Job, weights: Weights, epoch: int) -> Run:
    model, head = job.make()
    load_weights(model, head, weights)
    history = [line for line in read_lines(path) if line["event"] == "epoch"]
    result = read_result(path) or {}
    finished = result if result.get("best_epoch") == epoch else {}  # else of an earlier end: the run has gone on since
    return Run(
        job=job,
        model=model,
        head=head,
        history=history,
        best_epoch=epoch,
        validation=finished.get("validation", {}),
        test=finished.get("test", {}),
        baselines=finished.get("baselines", {}),
        seconds=finished.get("seconds", 0.0),
        window=finished.get("window"),
        path=path,
    )


def _moved(run: Run, graph: GraphLike | None) -> Run:
    """A run on another graph."""
    if graph is None:
        return run
    source = open_source(graph)
    problem = run.job.task.bind(source.graph, seed=run.settings.seed, state=run.problem.state())
    if problem.graph.features.shape != run.problem.graph.features.shape:  # type: ignore[union-attr]
        raise OptionError(f"the graph has other features than the run's: {fingerprint(source.graph)['features']}")
    return replace(run, job=replace(run.job, source=source, problem=problem))


def _median(values: list[float]) -> float | None:
    return round(sorted(values)[len(values) // 2], 6) if values else None
