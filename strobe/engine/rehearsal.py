"""A run that watches, rehearsed before its first snapshot: what would be refused days later is refused at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from strobe.engine.job import Given, choose
from strobe.engine.progress import Progress
from strobe.engine.sampled import SampledSteps
from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.graph.convert import from_edges
from strobe.graph.features import Carrier, given
from strobe.tasks.split import PARTS

_NODES, _EDGES, _SNAPSHOTS = 8, 16, 64


def rehearse(said: Given, empty: DynamicGraph) -> None:
    """Raises where model, task, plan or settings cannot be used on a graph like one that has no snapshots yet.

    Only what is derived from snapshots can be made up: a source that brings features or labels of its own is a graph,
    whose snapshots are there at once.
    """
    if empty.labels is not None or empty.features is None or given(empty.features) is not None:
        return
    settings = said.settings
    assert settings is not None
    assert settings.fit is not None
    made_up = _made_up(empty.features, directed=empty.directed)
    job = choose(replace(said, graph=made_up, settings=replace(settings, fit=None)), None, Progress())
    SampledSteps(job)
    split = job.problem.split
    least = _SNAPSHOTS - split.test.stop + 2 * split.gap + len(PARTS)  # the last ones' targets have not arrived
    if settings.fit < least:
        raise OptionError(
            f"a run of {job.task.name} begins with at least {least} snapshots, not {settings.fit}: wait "
            "for more (fit, --fit)"
        )


def _made_up(features: Carrier, *, directed: bool) -> DynamicGraph:
    drawn = np.random.default_rng(0)
    edges = [drawn.integers(0, _NODES, (2, _EDGES)) for _ in range(_SNAPSHOTS)]
    return from_edges(edges, num_nodes=_NODES, directed=directed, parallel="count").with_features(features)
