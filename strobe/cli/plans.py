"""``strobe plans``: the ways in which ranks can share the work."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.table import Table

from strobe.cli.console import err, out
from strobe.cli.listing import defaults_of, first_sentence, listing, with_options
from strobe.cli.plan_options import QUESTIONS, read_plan
from strobe.cli.run_options import AsJsonOption

if TYPE_CHECKING:
    from strobe.plan import Plan


def plans(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="PLAN",
            help="One of them, with options if it has any (relay:groups=4), or a JSON file. Without it, all.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJsonOption = False,
) -> None:
    """List plans, and the choices they are made of; or show one plan.

    A plan is a choice on every axis. Take one by its name, and vary it where you like:

    `strobe train social --ranks 4 --plan pts`

    `strobe train social --ranks 4 --plan pts --placement metis --batching windows:size=8`

    Or write one down, edit it, and use the file:

    `strobe plans relay --json > mine.json`

    `strobe train social --ranks 4 --plan mine.json`
    """
    if name is not None:
        _show(read_plan(name), as_json)
        return
    presets, choices = _presets(), _choices()
    if as_json:
        typer.echo(json.dumps({"plans": presets, "choices": choices}))
        return
    out.print(listing("plan", presets), "", *_matrix(presets), sep="\n", highlight=False)
    for axis, known in choices.items():
        out.print("", listing(f"--{axis}", known, told=QUESTIONS[axis]), sep="\n", highlight=False)
    hints = "\nNext: strobe plans NAME\n      strobe compare GRAPH --plans NAME,NAME --ranks 4"
    err.print(hints, highlight=False, markup=False, soft_wrap=True)


def _presets() -> list[dict[str, Any]]:
    from strobe.presets import PRESETS, describe, preset

    return [
        {
            "name": name,
            "summary": summary.replace("``", "`"),
            "options": defaults_of(PRESETS[name]),
            "exact": preset(name).exact,
            "plan": preset(name).to_json(),
        }
        for name, summary in describe()
    ]


def _choices() -> dict[str, list[dict[str, Any]]]:
    from strobe.registry import AXES

    return {
        axis: [
            {
                "name": name,
                "summary": first_sentence(choice) + ("" if choice.exact else " Approximate."),
                "options": {option: value for option, value in choice().to_json().items() if option != "name"},
                "exact": choice.exact,
            }
            for name, choice in known.items()
        ]
        for axis, known in AXES.items()
    }


def _matrix(presets: list[dict[str, Any]]) -> Iterator[RenderableType]:
    """The choices of every plan by name, a column per axis; an axis on which all agree, or all but one, is a word
    below."""
    from strobe.engine.summary import choices

    rows = {each["name"]: {axis: choice["name"] for axis, choice in choices(each["plan"]).items()} for each in presets}
    usual = {axis: Counter(row[axis] for row in rows.values()).most_common(1)[0][0] for axis in QUESTIONS}
    others = {axis: {name: row[axis] for name, row in rows.items() if row[axis] != usual[axis]} for axis in QUESTIONS}
    differ = [axis for axis in QUESTIONS if len(others[axis]) > 1]
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in ("plan", *differ):
        table.add_column()
    table.add_row(*(f"[dim]{title}[/]" for title in ("plan", *differ)))
    for name, row in rows.items():
        table.add_row(f"[bold]{name}[/]", *(row[axis] for axis in differ))
    yield table
    same = [f"{axis} {usual[axis]}{_but(others[axis])}" for axis in QUESTIONS if axis not in differ]
    if same:
        yield f"[dim]all:[/] {', '.join(same)}"


def _but(others: Mapping[str, str]) -> str:
    return "".join(f" ({name}: {choice})" for name, choice in others.items())


def _show(plan: Plan, as_json: bool) -> None:
    from strobe.engine.summary import choices
    from strobe.registry import AXES

    told = plan.to_json()
    if as_json:
        typer.echo(json.dumps(told))
        return
    table = Table.grid(padding=(0, 2, 0, 0))
    for style in ("dim", "bold", ""):
        table.add_column(style=style)
    for axis, choice in choices(told).items():
        options = {option: value for option, value in choice.items() if option != "name"}
        table.add_row(axis, choice["name"], with_options(first_sentence(AXES[axis][choice["name"]]), options))
    exact = "exact: it trains as one rank would" if plan.exact else "approximate: not quite what one rank would do"
    out.print(table, f"\n{exact}", highlight=False)
