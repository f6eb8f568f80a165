"""The data sets of benchmarks/quality.py, what is asked of each, and how models are trained on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import strobe


@dataclass(frozen=True, kw_only=True)
class Case:
    """A data set, what is asked of it, and how models are trained on it.

    Args:
        data_set: its name in the catalogue.
        name: of the case, where a data set has several; by default that of the data set.
        task: name of the task.
        task_options: of the task.
        settings: of training; all models have the same.
        seeds: one run each.
        snapshots: the first ones only; None takes all.
        cost: about how long a run takes beside others, in seconds: the longest are begun first.
    """

    data_set: str
    name: str = ""
    task: str
    task_options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)
    snapshots: int | None = None
    cost: int = 10

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.data_set)

    def load(self, graphs: Path | None) -> Any:
        """The graph, from a directory of saved graphs or from $STROBE_DATA."""
        if graphs is None:
            from strobe.graph.datasets import load  # which needs the packages that read files of data sets

            graph = load(self.data_set)
        else:
            graph = strobe.open(graphs / self.data_set)
        return graph if self.snapshots is None else graph[: self.snapshots]


SEEDS = (0, 1, 2)
STEPS: dict[str, Any] = {"epochs": 40, "window": 1, "lr": 0.003, "patience": 10}
"""A step per snapshot."""
LABELS: dict[str, Any] = {"task": "regression", "task_options": {"target": "labels"}}


def _links(data_set: str, cost: int, *, epochs: int = 40, name: str = "", **options: Any) -> Case:
    """Link prediction, with three seeds; ``options`` of the task, but for the number of snapshots."""
    return Case(
        data_set=data_set,
        name=name,
        task="link-prediction",
        snapshots=options.pop("snapshots", None),
        task_options={"negatives": 5, **options},
        settings=STEPS | {"epochs": epochs},
        seeds=SEEDS,
        cost=cost,
    )


CASES = (
    Case(data_set="england_covid", **LABELS, settings={"epochs": 200}, seeds=SEEDS),
    Case(data_set="chickenpox", **LABELS, settings={"epochs": 100}),
    Case(data_set="twitter_tennis_uo17", **LABELS, settings={"epochs": 60}, cost=20),
    Case(data_set="mathoverflow_monthly", task="regression", settings={"epochs": 100}, cost=30),
    Case(data_set="enron_full_monthly", task="regression", settings={"epochs": 60}, cost=50),
    _links("enron_dysat", 8),
    _links("uci_dysat", 30),
    _links("collegemsg", 50),
    _links("bitcoin_otc", 70),
    _links("bitcoin_alpha", 60),
    _links("canvote", 40, max_pairs=3000),
    _links("digg_reply", 60, max_pairs=500),
    _links("wikipedia_jodie", 60),
    _links("mathoverflow_monthly", 80, name="mathoverflow_monthly_links", max_pairs=1000, epochs=12),
    _links("as733", 90, snapshots=100, max_pairs=1000, candidates="seen", epochs=4),
    Case(data_set="pubmed_temporal", task="classification", settings={"epochs": 60}, cost=20),
    Case(data_set="dblp_coauthor", task="classification", settings={"epochs": 100}, cost=20),
)
QUICK = ("england_covid", "enron_dysat", "uci_dysat")
