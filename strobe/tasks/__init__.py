"""Tasks: what is asked of the cells, how answers are scored, and what trivial answers score."""

from strobe.tasks.base import Examples, Metrics, Problem, Task
from strobe.tasks.regression import NodeRegression
from strobe.tasks.split import Split

__all__ = ["TASKS", "Examples", "Metrics", "NodeRegression", "Problem", "Split", "Task"]

TASKS: dict[str, type[Task]] = {task.name: task for task in (NodeRegression,)}
"""Names for the command line and for run directories."""
