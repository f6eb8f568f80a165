"""``strobe models``: the models and tasks."""

from __future__ import annotations

import json

import typer

from strobe.cli.console import out, print_note
from strobe.cli.listing import default_options, first_sentence, options_table
from strobe.cli.options.run import AsJsonOption
from strobe.models import MODELS, describe_model
from strobe.tasks import TASKS


def models(as_json: AsJsonOption = False) -> None:
    """List models and tasks with their options and defaults.

    Give options as `--model-option layers=2` and `--task-option ahead=2`:

    `strobe train social --model tgcn --model-option layers=2 --task regression --task-option ahead=2`
    """
    model_rows = [
        {"name": each.name, "summary": each.summary.replace("``", "`"), "options": each.options}
        for each in map(describe_model, MODELS)
    ]
    task_rows = [
        {"name": name, "summary": first_sentence(task), "options": default_options(task)}
        for name, task in TASKS.items()
    ]
    if as_json:
        typer.echo(json.dumps({"models": model_rows, "tasks": task_rows}, default=str))
        return
    out.print(options_table("model", model_rows), "", options_table("task", task_rows), sep="\n", highlight=False)
    print_note("\nNext: strobe train GRAPH --model NAME --task NAME")
