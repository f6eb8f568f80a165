"""``strobe models``: what can be trained, and for what."""

from __future__ import annotations

import inspect
import json
from typing import Any

import typer

from strobe.cli.console import err, out
from strobe.cli.listing import defaults_of, listing
from strobe.cli.run_options import AsJsonOption


def models(as_json: AsJsonOption = False) -> None:
    """List models and tasks with their options and defaults.

    Options are given as `--model-option layers=2` and `--task-option ahead=2`:

    `strobe train social --model tgcn --model-option layers=2 --task regression --task-option ahead=2`
    """
    known, tasks = _models(), _tasks()
    if as_json:
        typer.echo(json.dumps({"models": known, "tasks": tasks}, default=str))
        return
    out.print(listing("model", known), "", listing("task", tasks), sep="\n", highlight=False)
    err.print("\nNext: strobe train GRAPH --model NAME --task NAME", highlight=False, markup=False, soft_wrap=True)


def _models() -> list[dict[str, Any]]:
    from strobe.models import MODELS, describe_model

    found = [describe_model(name) for name in MODELS]
    return [{"name": each.name, "summary": each.summary.replace("``", "`"), "options": each.options} for each in found]


def _tasks() -> list[dict[str, Any]]:
    from strobe.tasks import TASKS

    return [
        {
            "name": name,
            "summary": (inspect.getdoc(task) or "").split("\n", 1)[0].replace("``", "`"),
            "options": defaults_of(task),
        }
        for name, task in TASKS.items()
    ]
