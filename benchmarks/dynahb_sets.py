"""What hybrid batches are measured on: real graphs with an edge life, published shapes at 5%, and graphs with classes.

As in the paper features are in-degree and out-degree, the next snapshot's are predicted, and nodes are always present,
but for rust_git, most of whose files are long gone: there a node is present while it has an edge. Degrees are
log(1 + degree); the model says them, not by how much they differ from the last ones. The first 40% of the snapshots
train, the next 20% judge (the paper judges by all the rest). Sets that are too large for minutes on two cores are
thinned in time, never in nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import strobe
from strobe.graph import DynamicGraph
from strobe.graph.synthetic import PublishedShape
from strobe.tasks import Task, make_task

TRAIN, JUDGED_BY = 0.4, 0.2
SCALE = 0.05


@dataclass(frozen=True, kw_only=True)
class Case:
    """A graph, what is asked of it, and in words how it was cut. ``paper``: accuracies of Table 5. ``longer``: how many
    times as long as on other graphs everyone may train."""

    name: str
    load: Callable[[], DynamicGraph]
    task: Task
    said: str
    paper: dict[str, float] | None = None
    longer: float = 1.0


def _degrees() -> Task:
    return make_task("regression", train=TRAIN, validation=JUDGED_BY, from_last=False)


def _classes(train: float = TRAIN) -> Task:
    return make_task("classification", train=train, validation=JUDGED_BY)


def _shape(shape: str, scale: float = SCALE) -> DynamicGraph:
    return PublishedShape(shape=shape, scale=scale).write()[::2]


REGRESSION = (
    Case(
        name="rust_git",
        load=lambda: strobe.load("rust_git", life=6)[-60:],
        task=_degrees(),
        said="the last 60 months, edges live 6 months",
    ),
    Case(
        name="sx_mathoverflow",
        load=lambda: strobe.load("sx-mathoverflow", life=12, presence="always"),
        task=_degrees(),
        said="by month, edges live 12 months",
    ),
    Case(
        name="enron_full_monthly",
        load=lambda: strobe.load("enron_full_monthly", life=6, presence="always")[-26:],
        task=_degrees(),
        said="the last 26 months, edges live 6 months",
    ),
    Case(
        name="digg_reply",
        load=lambda: strobe.load("digg_reply", life=8, presence="always"),
        task=_degrees(),
        said="by 6 hours, edges live 2 days",
    ),
    Case(
        name="soc-flickr",
        load=lambda: _shape("soc-flickr"),
        task=_degrees(),
        said="the shape at 5%, every other snapshot",
        longer=1.5,
    ),
    Case(
        name="rec-amazon",
        load=lambda: _shape("rec-amazon"),
        task=_degrees(),
        said="the shape at 5%, every other snapshot",
        longer=1.5,
    ),
)

CLASSIFICATION = (
    Case(
        name="cora-t",
        load=lambda: strobe.load("cora-t"),
        task=_classes(),
        said="Cora, edges growing over 50 snapshots",
        paper={"full": 0.7414, "dbov": 0.7414, "dbos": 0.7355, "bvr": 0.7219, "dynahb": 0.7403},
    ),
    Case(
        name="pubmed-t",
        load=lambda: strobe.load("pubmed-t"),
        task=_classes(),
        said="Pubmed, edges growing over 50 snapshots",
        paper={"full": 0.7081, "dbov": 0.7082, "dbos": 0.6923, "bvr": 0.7062, "dynahb": 0.7076},
    ),
    Case(
        name="pubmed_temporal",
        load=lambda: strobe.load("pubmed_temporal"),
        task=_classes(0.7),
        said="Pubmed by the years of its papers; 70% of the years train: in the first 40% there are hardly any papers",
    ),
)

QUICK = Case(
    name="soc-flickr, small",
    load=lambda: _shape("soc-flickr", SCALE / 10),
    task=_degrees(),
    said="the shape at 0.5%, every other snapshot",
)
