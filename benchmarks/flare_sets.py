"""What trapezoid batches are measured on: real graphs with an edge life, and published shapes at 5%.

As in the paper features are in-degree and out-degree, and the next snapshot's are predicted; degrees are
log(1 + degree), and the model says them, not by how much they differ from the last ones. In shapes nodes are always
present; in real graphs, most of whose nodes are gone or yet to come, while they have an edge. The first half of the
snapshots trains, a fifth judges, the rest tests. Sets that are too large for minutes on two cores are thinned in time,
never in nodes; windows are short where time begins, in both stretches of an epoch, so that long sets save more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import strobe
from strobe.graph import DynamicGraph
from strobe.graph.synthetic import PublishedShape
from strobe.tasks import Task, make_task

TRAIN, JUDGED_BY = 0.5, 0.2
SCALE = 0.05


@dataclass(frozen=True, kw_only=True)
class Case:
    """A graph, and in words how it was cut. ``epochs``: of windows that slide, as many as there is time for;
    ``seeds``: of each."""

    name: str
    load: Callable[[], DynamicGraph]
    said: str
    epochs: int
    seeds: int = 1

    @property
    def task(self) -> Task:
        return make_task("regression", train=TRAIN, validation=JUDGED_BY, from_last=False)


def _shape(shape: str, scale: float = SCALE) -> DynamicGraph:
    return PublishedShape(shape=shape, scale=scale).write()


CASES = (
    Case(
        name="rust_git",
        load=lambda: strobe.load("rust_git", life=6)[-60:],
        said="the last 60 months, edges live 6 months",
        epochs=16,
        seeds=2,
    ),
    Case(
        name="as733",
        load=lambda: strobe.load("as733")[::7],
        said="by week",
        epochs=40,
        seeds=2,
    ),
    Case(
        name="sx_mathoverflow",
        load=lambda: strobe.load("sx-mathoverflow", life=12),
        said="by month, edges live 12 months",
        epochs=30,
        seeds=2,
    ),
    Case(
        name="enron_full_monthly",
        load=lambda: strobe.load("enron_full_monthly", life=6),
        said="by month, edges live 6 months",
        epochs=40,
        seeds=2,
    ),
    Case(
        name="soc-flickr",
        load=lambda: _shape("soc-flickr"),
        said="the shape at 5%",
        epochs=8,
    ),
    Case(
        name="rec-amazon",
        load=lambda: _shape("rec-amazon"),
        said="the shape at 5%",
        epochs=8,
    ),
    Case(
        name="soc-youtube",
        load=lambda: _shape("soc-youtube")[::2],
        said="the shape at 5%, every other snapshot",
        epochs=12,
    ),
)

QUICK = Case(
    name="soc-youtube, small",
    load=lambda: _shape("soc-youtube", SCALE / 50)[::2],
    said="the shape at 0.1%, every other snapshot",
    epochs=2,
)

SHAPES = tuple(case for case in CASES if case.said.startswith("the shape"))
"""Those that the paper has, too."""


def named(name: str) -> Case:
    """A case by its name."""
    return next(case for case in (*CASES, QUICK) if case.name == name)
