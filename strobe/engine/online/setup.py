"""The set-up of a run that follows a source: its directory, and a check of the request before any snapshot arrives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from strobe.engine.records.run_directory import CONFIG, RunRecord, remove_run
from strobe.engine.sources.context import OnlineSources
from strobe.errors import OptionError, StrobeError
from strobe.graph import DynamicGraph
from strobe.graph.convert import from_edges
from strobe.graph.disk.growing import GrowingGraph
from strobe.graph.disk.metadata import hidden_sibling, is_growing
from strobe.graph.features import FeatureProvider, find_stored
from strobe.plan import Plan
from strobe.tasks.split import PARTS

if TYPE_CHECKING:
    from strobe.engine.online.loop import OpenSource

_REJECTS = f"{GRAPH}.rejects.csv"
_NODES, _EDGES, _SNAPSHOTS = 8, 16, 64
"""Size of the synthetic graph that a request is checked on before any snapshot has arrived."""


@contextmanager
def remove_if_refused(path: Path) -> Iterator[None]:
    """A run that is refused before its first snapshot arrives leaves nothing: the same command may be given again."""
    try:
        yield
    except StrobeError:
        if not is_growing(path / GRAPH) or not len(GrowingGraph(path / GRAPH)):
            remove_run(path)
        raise


def replace_run(
    path: Path,
    record: RunRecord,
    request: TrainRequest,
    ranks: int,
    *,
    open_source: OpenSource,
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
def _read_once(path: Path, request: TrainRequest, open_source: OpenSource) -> Iterator[list[Path]]:
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
        "task": {"name": request.task} if isinstance(request.task, str) else request.task and request.task.to_json(),
        "problem": None,
        "settings": request.settings.to_json(),
        "plan": request.plan.to_json(),
        "ranks": ranks,
        "online": dict(source_config),
    }


def _refuse_own_graph(path: Path, source: str | None) -> None:
    if source is not None and Path(source).resolve().is_relative_to((path / GRAPH).resolve()):
        raise OptionError(f"{source} is what the run at {path} has kept: choose another place (--out)")


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
    job.plan.batching.start(OnlineSources(job))
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
