"""Jobs that the planner looks at."""

from __future__ import annotations

from typing import Any

from strobe.comm import Comm
from strobe.engine.inputs.resolve import TrainRequest, resolve
from strobe.engine.job import Job
from strobe.engine.progress import Progress
from strobe.graph import DynamicGraph
from strobe.planner.services import PlannerServices
from tests.support.runs import small_graph


def request_of(
    model: Any = "tgcn",
    graph: DynamicGraph | None = None,
    task: str = "regression",
    plan: Any = "relay",
    options: dict[str, Any] | None = None,
    **settings: Any,
) -> TrainRequest:
    """One thread of a CPU, a small graph and four hidden columns, unless it is said otherwise."""
    model_options = {"hidden": 4} | (options or {}) if isinstance(model, str) else None
    chosen = {"threads": 1, "device": "cpu"} | settings
    graph = small_graph() if graph is None else graph
    return TrainRequest(graph, model, task, model_options, None, chosen, None, plan, services=PlannerServices())


def job_of(*given: Any, comm: Comm | None = None, **options: Any) -> Job:
    """The job of a request."""
    return resolve(request_of(*given, **options), None, Progress(), *([] if comm is None else [comm]))
