"""What trapezoid batches are measured on: real graphs with an edge life, and published shapes at 5%.

As in the paper features are in-degree and out-degree, and the next snapshot's are predicted; degrees are
log(1 + degree), and the model says them, not by how much they differ from the last ones. Nodes are always present, but
for rust_git and as733, most of whose nodes are gone or yet to come: there a node is present while it has an edge. The
first half of the snapshots trains, a fifth judges, the rest tests. Sets that are too large for minutes on two cores are
thinned in time, never in nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import strobe
from strobe.graph import DynamicGraph
from strobe.graph.synthetic import Published
from strobe.tasks import Task, make_task

TRAIN, JUDGED_BY = 0.5, 0.2
SCALE = 0.05


@dataclass(frozen=True, kw_only=True)
class Case:
    """A graph, and in words how it was cut. ``epochs``: of windows that slide, as many as about half a minute of full
    history takes on two ranks."""

    name: str
    load: Callable[[], DynamicGraph]
    said: str
    epochs: int

    @property
    def task(self) -> Task:
        return make_task("regression", train=TRAIN, validation=JUDGED_BY, from_last=False)


def _shape(shape: str, scale: float = SCALE) -> DynamicGraph:
    return Published(shape=shape, scale=scale).write()[::2]


CASES = (
    Case(
        name="rust_git",
        load=lambda: strobe.load("rust_git", life=6)[-60:],
        said="the last 60 months, edges live 6 months",
        epochs=8,
    ),
    Case(
        name="as733",
        load=lambda: strobe.load("as733")[::14],
        said="every other week",
        epochs=20,
    ),
    Case(
        name="sx_mathoverflow",
        load=lambda: strobe.load("sx-mathoverflow", life=12, presence="always"),
        said="by month, edges live 12 months",
        epochs=8,
    ),
    Case(
        name="enron_full_monthly",
        load=lambda: strobe.load("enron_full_monthly", life=6, presence="always"),
        said="by month, edges live 6 months",
        epochs=6,
    ),
    Case(
        name="soc-flickr",
        load=lambda: _shape("soc-flickr"),
        said="the shape at 5%, every other snapshot",
        epochs=6,
    ),
    Case(
        name="rec-amazon",
        load=lambda: _shape("rec-amazon"),
        said="the shape at 5%, every other snapshot",
        epochs=6,
    ),
    Case(
        name="soc-youtube",
        load=lambda: _shape("soc-youtube"),
        said="the shape at 5%, every other snapshot",
        epochs=5,
    ),
)

QUICK = Case(
    name="soc-youtube, small",
    load=lambda: _shape("soc-youtube", SCALE / 25),
    said="the shape at 0.2%, every other snapshot",
    epochs=6,
)

SHAPES = tuple(case for case in CASES if case.said.startswith("the shape"))
"""Those that the paper has, too."""


def named(name: str) -> Case:
    """A case by its name."""
    return next(case for case in (*CASES, QUICK) if case.name == name)
