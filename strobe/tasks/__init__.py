"""Tasks: examples of each snapshot, loss, metrics and trivial baselines."""

from __future__ import annotations

from typing import Any

from strobe.errors import UnknownNameError
from strobe.graph import DynamicGraph
from strobe.graph.features import find_stored
from strobe.options import check_options, option_types
from strobe.tasks.base import Examples, Metrics, Problem, Task
from strobe.tasks.classification import NodeClassification
from strobe.tasks.link_prediction import LinkPrediction
from strobe.tasks.link_ranking import LinkRanking
from strobe.tasks.regression import NodeRegression
from strobe.tasks.split import Split

__all__ = [
    "TASKS",
    "Examples",
    "LinkPrediction",
    "LinkRanking",
    "Metrics",
    "NodeClassification",
    "NodeRegression",
    "Problem",
    "Split",
    "Task",
    "make_task",
    "task_for",
]

TASKS: dict[str, type[Task]] = {
    task.name: task for task in (NodeRegression, NodeClassification, LinkPrediction, LinkRanking)
}
"""Names for the command line and for run directories."""


def make_task(name: str, **options: Any) -> Task:
    """The task of that name; options are its fields. ``make_task(**task.to_json())`` equals the task."""
    if name not in TASKS:
        raise UnknownNameError("task", name, TASKS)
    check_options(name, options, option_types(TASKS[name]))
    return TASKS[name](**options)


def task_for(graph: DynamicGraph) -> Task:
    """The task a graph seems made for: its classes, else its targets, else the degrees of the next snapshot."""
    if graph.labels is None:
        return NodeRegression()
    carrier = find_stored(graph.labels)
    if carrier is not None and carrier.values.dtype.kind != "f" and carrier.shape in ((), (1,)):
        return NodeClassification()
    return NodeRegression(target="labels")
