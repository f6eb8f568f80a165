"""A finished run: its model with the best weights, how it went, and what it scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from strobe.engine.checkpoint.store import Weights, best_weights, load_weights
from strobe.engine.evaluation.calibrate import CalibratedLinks
from strobe.engine.evaluation.evaluate import score
from strobe.engine.inputs.graph_source import GraphLike, fingerprint, open_graph_source
from strobe.engine.inputs.model_choice import ModelLike
from strobe.engine.inputs.resolve import TrainRequest, resolve
from strobe.engine.job import Job
from strobe.engine.progress import Progress
from strobe.engine.records.run_directory import read_config, read_lines, read_result
from strobe.engine.services import Services
from strobe.engine.settings import Settings
from strobe.errors import OptionError, UnknownNameError
from strobe.ops.sparse.csr import IntArray
from strobe.tasks.base import Metrics, Problem
from strobe.tasks.split import PARTS

if TYPE_CHECKING:
    from pyarrow import Table

ALL = "all"
Scores = dict[str, Metrics]


@dataclass(kw_only=True)
class Run:
    """A finished run. ``validation`` and ``test`` are metrics at the best epoch, with the best weights.

    ``baselines``: metrics of predictors without learning, by part and name; ``ranks``: the ledger of every rank over
    all epochs, with several; ``window``: cost of a step's window, where windows decay; ``online``: trained on every
    snapshot of its graph as they arrived; ``calibration``: from scores of pairs to probabilities, of link tasks;
    ``backend``: what carried rows between ranks; ``startup``: seconds before the first epoch, by stage.
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
    calibration: CalibratedLinks | None = None
    path: Path | None = None
    backend: str | None = None
    startup: dict[str, Any] | None = None

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
        from strobe.engine.evaluation.predict import predictions

        return predictions(self, part, embeddings=embeddings)

    def predict_links(
        self, top: int = 20, nodes: Sequence[int] | IntArray | None = None, *, exclude: str = "none"
    ) -> Table:
        """The candidates with the highest scores of each node in the next snapshot
        (``strobe.engine.evaluation.predict_links``)."""
        from strobe.engine.evaluation.predict_links import predict_links

        return predict_links(self, top, nodes, exclude=exclude)

    def predict_pairs(self, sources: Any, destinations: Any) -> Table:
        """Scores of listed pairs of node ids in the next snapshot."""
        from strobe.engine.evaluation.predict_links import predict_pairs

        return predict_pairs(self, sources, destinations)

    def summary(self) -> str:
        """What came out, in a few lines for people."""
        return self.job.services.summary(self.to_json())

    def curve(self) -> str:
        """The learning curve as a picture (SVG)."""
        return self.job.services.learning_curve(self)

    def to_json(self) -> dict[str, Any]:
        """The contents of ``result.json``."""
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
            "startup": self.startup,
            "seconds_per_epoch": _median([line["train_s"] for line in self.history]),
            "device": str(self.job.device),
            "threads": self.job.threads,
            **(self.memory or {}),
            **({} if self.window is None else {"window": self.window}),
            **self._calibration_json(),
            **({"plan": self.job.plan.to_json(), "ranks": self.ranks, "backend": self.backend} if self.ranks else {}),
        }

    def _calibration_json(self) -> dict[str, Any]:
        if self.calibration is None:
            return {}
        return {"calibration_error": self.calibration.error, "calibration": self.calibration.to_json()}


def open_run(
    run: Run | str | PathLike[str],
    *,
    graph: GraphLike | None = None,
    model: ModelLike | None = None,
    device: str | None = None,
    progress: Progress | None = None,
    services: Services | None = None,
) -> Run:
    """The run of a directory with its best weights; ``graph`` puts it on another graph with the same features.

    ``model`` is needed only where the run's has no name that Strobe knows.
    """
    if isinstance(run, Run):
        return _on_other_graph(run, graph)
    path = Path(run)
    config = read_config(path)
    if config["problem"] is None:
        raise OptionError(
            f"the run at {path} has not learnt from a snapshot yet: go on with it (strobe online --resume)"
        )
    changes = {} if device is None else {"device": device}
    request = TrainRequest(graph, model, changes=changes, services=services or Services())
    same = config if graph is None else config | {"fingerprint": None}  # another graph may differ
    job = resolve(request, same, progress or Progress())
    online = "online" in config and graph is None
    return replace(_build_run(path, job, *best_weights(path)), online=online)


def _build_run(path: Path, job: Job, weights: Weights, epoch: int) -> Run:
    model, head = job.make_model()
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
        startup=finished.get("startup"),
        calibration=CalibratedLinks.from_json(finished["calibration"]) if finished.get("calibration") else None,
        path=path,
    )


def _on_other_graph(run: Run, graph: GraphLike | None) -> Run:
    """A run on another graph."""
    if graph is None:
        return run
    source = open_graph_source(graph)
    problem = run.job.task.bind(source.graph, seed=run.settings.seed, state=run.problem.state())
    if problem.graph.features.shape != run.problem.graph.features.shape:  # type: ignore[union-attr]
        raise OptionError(f"the graph has other features than the run's: {fingerprint(source.graph)['features']}")
    return replace(run, job=replace(run.job, source=source, problem=problem))


def _median(values: list[float]) -> float | None:
    return round(sorted(values)[len(values) // 2], 6) if values else None


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


def evaluate(
    run: Run | str | PathLike[str],
    part: str = "test",
    *,
    graph: GraphLike | None = None,
    model: ModelLike | None = None,
) -> Evaluation:
    """Evaluate a run with its best weights.

    Args:
        run: a run, or its directory.
        part: ``train``, ``validation``, ``test``, or ``all`` snapshots that have labels, for a graph that the run never
    saw.
        graph: another graph with the same features.
        model: needed only where the run's model is not one of Strobe's own.

    Returns:
        Metrics of the model and of the baselines.

    Raises:
        StrobeError: the part is unknown, or the run was trained on all its snapshots as they arrived.
    """
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
        problem = problem.as_test_only()
    times = problem.split.part("test" if part == ALL else part)
    found = score(opened.model, opened.head, opened.job, opened.job.evaluation_windows(times), times, problem)
    baselines = opened.job.baselines("test" if part == ALL else part, problem)
    return Evaluation(part=part, snapshots=(times.start, times.stop), metrics=found, baselines=baselines)
