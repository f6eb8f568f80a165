"""``strobe models``: what can be trained, and for what."""

from __future__ import annotations

import inspect
import json
from dataclasses import MISSING, fields
from typing import Any

import typer
from rich.table import Table

from strobe.cli.console import err, out
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
    out.print(_table("model", known), "", _table("task", tasks), sep="\n", highlight=False)
    err.print("\nNext: strobe train GRAPH --model NAME --task NAME", highlight=False, markup=False, soft_wrap=True)


def _models() -> list[dict[str, Any]]:
    from strobe.models import MODELS, describe_model

    found = [describe_model(name) for name in MODELS]
    return [{"name": each.name, "summary": each.summary, "options": each.options} for each in found]


def _tasks() -> list[dict[str, Any]]:
    from strobe.tasks import TASKS

    return [
        {
            "name": name,
            "summary": (inspect.getdoc(task) or "").split("\n", 1)[0],
            "options": {field.name: field.default for field in fields(task) if field.default is not MISSING},
        }
        for name, task in TASKS.items()
    ]


def _table(what: str, rows: list[dict[str, Any]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    table.add_row(f"[dim]{what}[/]", "[dim]what it is, and its options[/]")
    for row in rows:
        options = " ".join(f"{name}={_shown(value)}" for name, value in row["options"].items())
        table.add_row(row["name"], f"{row['summary'].replace('``', '')}\n[cyan]{options}[/]")
    return table


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
