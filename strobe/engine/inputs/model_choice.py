"""What a user may give as a model or a task, made into one thing each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from strobe.errors import OptionError, UnknownNameError
from strobe.graph import DynamicGraph
from strobe.models import MODELS, describe_model, make_model
from strobe.tasks import Task, make_task, task_for
from strobe.view import View

ModelLike = str | nn.Module | Callable[[int], nn.Module]


@dataclass(frozen=True)
class ModelChoice:
    """A model that is yet to be made: its name and options as JSON knows them, and how to make it."""

    name: str
    options: dict[str, Any]
    by_name: bool
    make: Callable[[int], nn.Module]

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "options": self.options, "by_name": self.by_name}


def choose_model(model: ModelLike, options: Mapping[str, Any] | None = None) -> ModelChoice:
    """A model from a registered name, a module, or a function of the number of input features."""
    options = dict(options or {})
    if isinstance(model, str):
        if model not in MODELS:
            raise UnknownNameError("model", model, MODELS)
        resolved = json.loads(json.dumps(describe_model(model).options | options))  # as a run directory will have them
        return ModelChoice(model, resolved, True, lambda inputs: make_model(model, inputs, **options))
    if isinstance(model, nn.Module):
        if options:
            raise OptionError("model options belong to a model given by name, this one is made already")
        return ModelChoice(type(model).__name__, {}, False, lambda inputs: _check_model(model))
    if not callable(model):
        raise OptionError(f"a model is a name, a torch module or a function of the number of inputs, not {model!r}")
    name = getattr(model, "__name__", type(model).__name__)
    return ModelChoice(name, options, False, lambda inputs: _check_model(model(inputs, **options)))


def _check_model(model: Any) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise OptionError(f"the function that makes the model gave {type(model).__name__}, not a torch module")
    if not isinstance(getattr(model, "width", None), int):
        raise OptionError(
            f"{type(model).__name__} does not say how wide its embeddings are: set self.width to the number of columns "
            "that forward(view) gives"
        )
    if _check_rows not in model._forward_hooks.values():  # a module may be trained again
        model.register_forward_hook(_check_rows)
    return model


def _check_rows(model: nn.Module, given: tuple[Any, ...], z: Any) -> None:
    """Refuses what a model of the user's own gives if it is not a row for each cell: kernels would read beyond it."""
    view: View = given[0]
    wanted = [view.num_cells, int(model.width)]  # type: ignore[arg-type]
    found = list(z.shape) if isinstance(z, Tensor) else type(z).__name__
    if found != wanted:
        name = type(model).__name__
        raise OptionError(
            f"forward(view) of {name} must give a row of width {wanted[1]} for each of the view's cells, "
            f"{wanted}, not {found}"
        )


def choose_task(task: str | Task | None, graph: DynamicGraph) -> Task:
    """A task from a name, as it is, or the one that fits the graph's labels."""
    if isinstance(task, Task):
        return task
    return task_for(graph) if task is None else make_task(task)


def task_json(task: Task) -> dict[str, Any]:
    """A task as JSON will read it again: without tuples."""
    described: dict[str, Any] = json.loads(json.dumps(task.to_json()))
    return described
