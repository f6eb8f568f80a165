"""What must not depend on the future: runs, scores and predictions on a graph and on one whose future was replaced."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import strobe
from strobe.api import open_run, train_online
from strobe.batching import Hybrid, Vertices
from strobe.engine import Run
from strobe.engine.forward import embeddings, predict_examples
from strobe.engine.online.loop import OnlineConfig, SnapshotSource
from strobe.engine.run import evaluate
from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.graph.follow import follow
from strobe.placement import Chunks
from strobe.plan import Plan
from strobe.presets import preset
from strobe.tasks import LinkPrediction, NodeClassification, NodeRegression, Task
from strobe.tasks.base import Examples
from strobe.tasks.split import PARTS

import torch  # isort: skip
from torch import Tensor  # isort: skip

SNAPSHOTS, NODES, EDGES, COLUMNS = 20, 24, 60, 2
TOLERANCE = 1e-12
SETTINGS: dict[str, Any] = {"epochs": 2, "patience": 0, "precision": "float64", "threads": 1}

TASKS: dict[str, Task] = {
    "degrees": NodeRegression(),
    "degrees, ahead 2": NodeRegression(ahead=2),
    "features, horizon 3": NodeRegression(target="features", horizon=3),
    "labels": NodeRegression(target="labels"),
    "labels, delay 2": NodeRegression(target="labels", label_delay=2),
    "classes": NodeClassification(),
    "classes, delay 1": NodeClassification(label_delay=1),
    "links": LinkPrediction(negatives=2, eval_negatives=3),
    "links, ahead 2": LinkPrediction(ahead=2, negatives=2, eval_negatives=3, from_history=False),
}
PLANS: dict[str, dict[str, Any]] = {
    "distdy": {"window": 3, "size": 100, "fanouts": 2},
    "dynahb": {"size_policy": "random", "async_evaluation": False},  # as it comes, what it trains depends on the clock
    "flare": {"decayed": 3, "min_keep": 0.3, "chunks": 4},
    "psg": {"size": 4},
    "dygnex": {"size": 4, "times": "counted"},  # as it comes, the order of steps depends on the clock
}
"""Options of presets on a small graph; those that are not here have none."""


@dataclass(frozen=True)
class Case:
    """One combination, and what of the future is changed: ``presence`` too, or values alone."""

    task: str
    model: str
    plan: str
    way: str
    presence: bool
    seed: int = 0

    @property
    def name(self) -> str:
        changed = "presence" if self.presence else "values"
        return f"{self.way}, {self.task}, {self.model}, {self.plan}, other {changed}"


class ViolationError(Exception):
    """Something depends on the future; the message says what."""


class RefusedError(Exception):
    """Strobe does not train this combination; the message says why."""


def make_graph(
    task: Task, seed: int, *, known: int = SNAPSHOTS, future: int = 0, presence: bool = False
) -> DynamicGraph:
    """A random graph of which all that is known when the first ``known`` snapshots have been read depends on ``seed``
    alone, the rest on ``future``, too. A label becomes known after the task's ``label_delay``.

    Without ``presence`` later snapshots have the same nodes and as many arcs, whatever ``future`` is.
    """
    delay = getattr(task, "label_delay", None) or 0
    there = np.random.default_rng([seed, 0])
    edges, nodes, x, y = [], [], [], []
    for t in range(SNAPSHOTS):
        rng = np.random.default_rng([seed, 1, t] if t < known or not future else [seed, 2, t, future])
        present = np.sort(there.choice(NODES, 18, replace=False))
        if presence and future and t >= known:
            present = np.sort(rng.choice(NODES, int(rng.integers(2, NODES)), replace=False))
        nodes.append(present)
        edges.append(_distinct_edges(rng, present, EDGES))
        x.append(rng.normal(size=(len(present), COLUMNS)).astype(np.float32))
        whole = isinstance(task, NodeClassification)
        late = future and t + delay >= known
        rng = np.random.default_rng([seed, 3, t, future if late else 0])
        values = rng.integers(0, 3, len(present)) if whole else rng.normal(size=len(present))
        y.append(np.where(rng.random(len(present)) < 0.1, -1 if whole else np.nan, values))
    labels = [rows.astype(np.int64) for rows in y] if isinstance(task, NodeClassification) else y
    return strobe.from_edges(edges, num_nodes=NODES, nodes=nodes, x=x, y=labels)


def _distinct_edges(rng: np.random.Generator, present: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """Distinct edges without self-loops, [2, count] or fewer."""
    pairs = np.array([(a, b) for a in present for b in present if a != b]).T
    return pairs[:, rng.permutation(pairs.shape[1])[:count]]


def make_plan(name: str) -> Plan:
    """A preset with options that suit the graph."""
    plan = preset(name, **PLANS.get(name, {}))
    if isinstance(plan.batching, Hybrid):
        plan = replace(plan, batching=replace(plan.batching, vertices=(0.2, 0.5), min_nodes=1))
    if isinstance(plan.batching, Vertices):
        plan = replace(plan, batching=replace(plan.batching, size=8))
    if isinstance(plan.placement, Chunks):  # as it comes, it first measures passes for 20 seconds
        plan = replace(plan, placement=replace(plan.placement, loads="counted"))
    return plan


def train(graph: DynamicGraph, case: Case) -> Run:
    """A short run.

    Raises:
        RefusedError: the task, the model and the plan do not go together.
    """
    chosen: dict[str, Any] = {"plan": make_plan(case.plan), "model_options": {"hidden": 4}, **SETTINGS}
    try:
        return strobe.train(graph, case.model, TASKS[case.task], **chosen)
    except OptionError as error:
        raise RefusedError(str(error).splitlines()[0]) from error


def last_known(run: Run) -> int:
    """The last snapshot that training and validation may know: targets of validation are known when it is read."""
    split = run.problem.split
    return max(split.with_examples("validation")) + max(run.problem.target_delay, 0)


def same(what: str, first: Any, second: Any, exact: bool) -> None:
    """Compare two nests of numbers.

    Raises:
        ViolationError: they differ by more than allowed.
    """
    if isinstance(first, dict):
        if first.keys() != second.keys():
            raise ViolationError(f"{what}: {sorted(first)} became {sorted(second)}")
        for key in first:
            same(f"{what} {key}", first[key], second[key], exact)
        return
    a, b = (np.asarray(value, np.float64) for value in (first, second))
    if a.shape != b.shape:
        raise ViolationError(f"{what}: shape {a.shape} became {b.shape}")
    close = np.array_equal(a, b, equal_nan=True) if exact else np.allclose(a, b, TOLERANCE, TOLERANCE, equal_nan=True)
    if not close:
        raise ViolationError(f"{what} changed by up to {np.nanmax(np.abs(a - b)):.3g}")


def weights_of(run: Run) -> dict[str, Any]:
    """All weights as arrays."""
    return {
        f"{part}.{name}": value.numpy()
        for part in ("model", "head")
        for name, value in getattr(run, part).state_dict().items()
    }


def fitted_of(run: Run) -> dict[str, Any]:
    """All fitted numbers."""
    state = dict(run.problem.state())
    inputs = state.pop("inputs")
    state.pop("names", None)
    fitted = {name: value for name, value in state.items() if value is not None}
    return {**{f"inputs {name}": value for name, value in inputs.items()}, **fitted}


def predictions_of(run: Run, up_to: int, part: str) -> dict[str, Any]:
    """What ``Run.predict`` gives for the snapshots of a part whose targets are known when ``up_to`` has been read."""
    known = [t for t in run.problem.split.with_examples(part) if t + run.problem.target_delay <= up_to]
    if not any(run.problem.examples(t) is not None for t in run.problem.split.with_examples(part)):
        return {}
    rows = run.predict(part).to_pandas()
    rows = rows[rows["t"].isin(known)]
    return {name: values.to_numpy(np.float64) for name, values in rows.items() if name not in ("read_time", "time")}


def compare_predictions(what: str, first: Run, second: Run, up_to: int, exact: bool) -> None:
    """Predictions of two runs up to a snapshot: for every cell, and for examples whose targets are known by then."""
    for part in PARTS:
        if first.problem.split.part(part).start > up_to:
            continue
        same(f"{what}, {part}", by_cell(first, part, up_to), by_cell(second, part, up_to), exact)
        same(f"{what}, {part}", predictions_of(first, up_to, part), predictions_of(second, up_to, part), exact)


def by_cell(run: Run, part: str, up_to: int) -> dict[str, Any]:
    """The embedding of every cell up to a snapshot and what is predicted for it, whether or not its target is known."""
    problem = run.problem
    times = problem.split.part(part)
    run.model.eval()
    found: dict[str, Any] = {}
    windows = run.job.evaluation_windows(times)
    for t, z, local in embeddings(run.model, run.head, problem, windows, times, problem.unlabeled_examples):
        if t <= up_to:
            found[f"embedding {t}"] = _embeddings_read(z, local.examples).numpy()
            columns = problem.table(predict_examples(run.head, z, local.examples), local.examples, t)
            found |= {f"{name} {t}": values for name, values in _numbers(columns)}
    return found


def _embeddings_read(z: Tensor, examples: Examples) -> Tensor:
    """The embeddings of examples. Those of pairs are among others, also of later snapshots."""
    index = examples.cell_index
    if examples.pairs is not None:
        ends = (examples.pairs.sources, examples.pairs.row), (examples.pairs.destinations, examples.pairs.column)
        index = tuple(nodes.rows[at.long()] for nodes, at in ends)
    return z if index is None else torch.cat([z[rows] for rows in index])


def _numbers(columns: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, values) for name, values in columns.items() if np.asarray(values).dtype.kind in "biuf")


def parts_known(run: Run, up_to: int) -> list[str]:
    """Parts whose targets are all known when a snapshot has been read."""
    split, reach = run.problem.split, run.problem.target_delay
    return [part for part in PARTS if max(split.with_examples(part)) + reach <= up_to]


def check_train(case: Case) -> None:
    """Train on both graphs."""
    task = TASKS[case.task]
    first = train(make_graph(task, case.seed), case)
    up_to = last_known(first)
    second = train(_changed(case, up_to), case)
    exact = not case.presence
    same("fitted", fitted_of(first), fitted_of(second), exact)
    losses, others = ([line["loss"] for line in run.history] for run in (first, second))
    same("losses", losses, others, exact)
    same("weights", weights_of(first), weights_of(second), exact)
    same("validation", first.validation, second.validation, exact)
    same("baselines", first.baselines["validation"], second.baselines["validation"], exact)
    compare_predictions("predictions", first, second, up_to, exact)


def check_evaluate(case: Case) -> None:
    """Score both graphs with the same weights."""
    task = TASKS[case.task]
    graph = make_graph(task, case.seed)
    run = train(graph, case)
    split = run.problem.split
    for up_to in sorted({split.train.stop // 2, split.validation.start, last_known(run), len(graph) - 2}):
        moved = open_run(run, graph=_changed(case, up_to))
        exact = not case.presence
        compare_predictions(f"c = {up_to}", run, moved, up_to, exact)
        for part in parts_known(run, up_to):
            score, other = evaluate(run, part), evaluate(moved, part)
            same(f"c = {up_to}, metrics, {part}", score.metrics, other.metrics, exact)
            same(f"c = {up_to}, baselines, {part}", score.baselines, other.baselines, exact)
    if getattr(task, "label_delay", 0) is None:  # no label is ever known, so no prediction may depend on any
        relabelled = open_run(run, graph=graph.with_labels(make_graph(task, case.seed, known=0, future=1).labels))
        for part in PARTS:
            first, second = (by_cell(each, part, len(graph)) for each in (run, relabelled))
            same(f"other labels, {part}", first, second, exact=True)


def check_predict(case: Case) -> None:
    """Predict what comes after the last snapshot of a graph that ends there."""
    task = TASKS[case.task]
    graph = make_graph(task, case.seed)
    run = train(graph, case)
    for end in (len(graph) - 3, len(graph) - 1):
        last = end - 1
        rows = open_run(run, graph=graph[:end]).predict("next").to_pandas()
        predicted = rows[rows["t"] == last].drop(columns=["t", "read_time", "time"])
        whole = _newest(run, last)
        same(f"after snapshot {last}", whole, {name: predicted[name].to_numpy() for name in whole}, exact=False)


def _newest(run: Run, t: int) -> dict[str, Any]:
    """What is predicted at snapshot t for everything that could be asked there, in a graph that goes on."""
    problem, times = run.problem, range(t, t + 1)
    run.model.eval()
    windows = run.job.evaluation_windows(times)
    for _, z, local in embeddings(run.model, run.head, problem, windows, times, problem.unlabeled_examples):
        columns = _numbers(problem.table(predict_examples(run.head, z, local.examples), local.examples, t))
        return {name: values for name, values in columns if not name.startswith("actual")}
    return {}


def _follow(graph: DynamicGraph, into: Path) -> SnapshotSource:
    return follow(graph, into=into)


def check_watch(case: Case) -> None:
    """Let snapshots of both graphs arrive."""
    task, up_to = TASKS[case.task], SNAPSHOTS - 5
    lines = []
    for graph in (make_graph(task, case.seed), _changed(case, up_to)):
        with tempfile.TemporaryDirectory(prefix="strobe-causality-") as folder:
            out = Path(folder) / "run"
            source = OnlineConfig(open_source=partial(_follow, graph), poll_s=0.01, once=True)
            settings: dict[str, Any] = {"fit_snapshots": 10, "precision": "float64", "threads": 1}
            settings |= {"plan": make_plan(case.plan), "model_options": {"hidden": 4}}
            try:
                found = train_online(source, case.model, task, out=out, **settings)
            except OptionError as error:
                raise RefusedError(str(error).splitlines()[0]) from error
            lines.append([line for line in found.history if line["arrived"] <= up_to + 1])
    same("snapshots learned from", len(lines[0]), len(lines[1]), True)
    for first, second in zip(*lines, strict=True):
        for key in ("loss", "validation", "baselines"):
            if first.get(key) is not None:
                same(f"epoch {first['epoch']}, {key}", first[key], second[key], not case.presence)


def _changed(case: Case, up_to: int) -> DynamicGraph:
    """The graph with another future."""
    return make_graph(TASKS[case.task], case.seed, known=up_to + 1, future=1, presence=case.presence)


def random_walk(steps: int = 700, nodes: int = 20, horizon: int = 12) -> DynamicGraph:
    """A signal that no model can forecast better than by its last value: x is a random walk, and the labels of snapshot
    t are x_{t+1}, …, x_{t+horizon}."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(steps, nodes)).cumsum(0)
    ahead = np.concatenate([x, np.full((horizon, nodes), np.nan)])
    y = [ahead[t + 1 : t + 1 + horizon].T.astype(np.float32) for t in range(steps)]
    edges = rng.integers(0, nodes, (2, 2 * nodes))
    return strobe.from_edges(
        [edges] * steps, num_nodes=nodes, x=[row[:, None].astype(np.float32) for row in x], y=y, parallel="count"
    )


def walk_errors(epochs: int) -> dict[str, float]:
    """Test errors of forecasts of a random walk. Of labels without a delay, the least of all figures that are shown."""
    graph = random_walk()
    chosen: dict[str, Any] = {"epochs": epochs, "threads": 1, "seed": 0}
    forecast = strobe.train(graph, "tgcn", NodeRegression(target="features", horizon=12), **chosen)
    labels = strobe.train(graph, "tgcn", NodeRegression(target="labels"), **chosen)
    x = np.stack([snapshot.x[:, 0] for snapshot in graph if snapshot.x is not None])
    test = forecast.problem.split.test
    persistence = float(np.mean([(x[t + k] - x[t]) ** 2 for t in test for k in range(1, 13)]))
    shown = [labels.test["mse"], *(scores["mse"] for scores in labels.baselines["test"].values())]
    return {
        "walk_persistence_mse": persistence,
        "walk_baseline_mse": forecast.baselines["test"]["last value"]["mse"],
        "walk_forecast_vs_persistence": forecast.test["mse"] / persistence,
        "walk_labels_least_mse": min(shown),
    }
