"""A run that watches begins where another may have been: that one goes when nothing speaks against the new one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

import numpy as np

from strobe.engine.inputs.model_choice import choose_model
from strobe.engine.inputs.resolve import TrainRequest, resolve
from strobe.engine.online.trainer import GRAPH
from strobe.engine.progress import Progress
from strobe.engine.records.run_directory import CONFIG, RunRecord
from strobe.engine.sources.context import EngineSources
from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.graph.convert import from_edges
from strobe.graph.disk.growing import GrowingGraph
from strobe.graph.disk.metadata import hidden_sibling
from strobe.graph.features import FeatureProvider, find_stored
from strobe.plan import Plan
from strobe.tasks.base import Task
from strobe.tasks.split import PARTS

if TYPE_CHECKING:
    from strobe.engine.online.loop import SnapshotSource


_REJECTS = f"{GRAPH}.rejects.csv"


def replace_run(
    path: Path,
    record: RunRecord,
    request: TrainRequest,
    ranks: int,
    *,
    open_source: Callable[[Path], SnapshotSource],
    source_config: Mapping[str, Any],
) -> None:
    """Record the configuration of a run before its first snapshot, and remove an earlier run: once the request and the
    source's first rows have been validated."""
    config = _config(path, request, ranks, source_config)
    if not (path / CONFIG).exists():
        record.announce(config)
        return
    _refuse_own_graph(path, source_config.get("source"))
    with _read_once(path, request, open_source) as arrived:
        rmtree(path / GRAPH, ignore_errors=True)
        (path / _REJECTS).unlink(missing_ok=True)
        record.announce(config)
        for each in arrived:
            each.rename(path / each.name)


@contextmanager
def _read_once(
    path: Path, request: TrainRequest, open_source: Callable[[Path], SnapshotSource]
) -> Iterator[list[Path]]:
    """Read the source once into a temporary directory; the run continues with it."""
    aside = hidden_sibling(path.resolve(), "arriving")
    rmtree(aside, ignore_errors=True)  # of one that was killed
    try:
        aside.mkdir()
        with closing(open_source(aside / GRAPH)) as source:
            dry_run(request, GrowingGraph(aside / GRAPH).open(0))
            source.poll()
        yield [aside / name for name in (GRAPH, _REJECTS) if (aside / name).exists()]
    finally:
        rmtree(aside, ignore_errors=True)


def _config(path: Path, request: TrainRequest, ranks: int, source_config: Mapping[str, Any]) -> dict[str, Any]:
    assert isinstance(request.plan, Plan)
    assert request.settings is not None
    if request.model is None:
        raise OptionError("say which model to train")
    return {
        "graph": {"path": str((path / GRAPH).resolve())},
        "fingerprint": None,
        "model": choose_model(request.model, request.model_options).to_json(),
        "task": _task_json(request.task),
        "problem": None,
        "settings": request.settings.to_json(),
        "plan": request.plan.to_json(),
        "ranks": ranks,
        "online": dict(source_config),
    }


def _refuse_own_graph(path: Path, source: str | None) -> None:
    if source is not None and Path(source).resolve().is_relative_to((path / GRAPH).resolve()):
        raise OptionError(f"{source} is what the run at {path} has kept: choose another place (--out)")


def _task_json(task: str | Task | None) -> dict[str, Any] | None:
    if task is None:
        return None
    return {"name": task} if isinstance(task, str) else task.to_json()


_NODES, _EDGES, _SNAPSHOTS = 8, 16, 64


def dry_run(request: TrainRequest, empty: DynamicGraph) -> None:
    """Raises where model, task, plan or settings cannot be used on a graph like one that has no snapshots yet.

    Only what is derived from snapshots can be made up: a source that brings features or labels of its own is a graph,
    whose snapshots are there at once.
    """
    if empty.labels is not None or empty.features is None or find_stored(empty.features) is not None:
        return
    settings = request.settings
    assert settings is not None
    assert settings.fit_snapshots is not None
    made_up = _synthetic_graph(empty.features, directed=empty.directed)
    job = resolve(replace(request, graph=made_up, settings=replace(settings, fit_snapshots=None)), None, Progress())
    job.plan.batching.start(EngineSources(job))
    split = job.problem.split
    least = _SNAPSHOTS - split.test.stop + 2 * split.gap + len(PARTS)  # the last ones' targets have not arrived
    if settings.fit_snapshots < least:
        raise OptionError(
            f"a run of {job.task.name} begins with at least {least} snapshots, not {settings.fit_snapshots}: wait "
            "for more (fit_snapshots, --fit-snapshots)"
        )


def _synthetic_graph(features: FeatureProvider, *, directed: bool) -> DynamicGraph:
    drawn = np.random.default_rng(0)
    edges = [drawn.integers(0, _NODES, (2, _EDGES)) for _ in range(_SNAPSHOTS)]
    return from_edges(edges, num_nodes=_NODES, directed=directed, parallel="count").with_features(features)
