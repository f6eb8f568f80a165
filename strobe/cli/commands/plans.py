"""``strobe plans``: the plans and the choices of each axis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.table import Table

from strobe.cli.console import out, print_json, print_note
from strobe.cli.listing import default_options, first_sentence, format_options, options_table
from strobe.cli.options.plan import AXIS_DESCRIPTIONS, read_plan
from strobe.cli.options.run import AsJsonOption
from strobe.plan import Plan
from strobe.presets import PRESETS
from strobe.registry import AXES
from strobe.report.summary import choices_by_axis

_PLAN = "One plan, with options if any (relay:pipeline_groups=4), or a JSON file. Without it, all."


def plans(
    name: Annotated[str | None, typer.Argument(metavar="PLAN", help=_PLAN, show_default=False)] = None,
    as_json: AsJsonOption = False,
) -> None:
    """List plans and the choices they are made of, or show one plan.

    A plan is a choice on every axis. Take one by its name, and override choices:

    `strobe train social --ranks 4 --plan pts`

    `strobe train social --ranks 4 --plan pts --placement metis --batching windows:size=8`

    Or write one to a file, edit it, and use the file:

    `strobe plans relay --json > mine.json`

    `strobe train social --ranks 4 --plan mine.json`
    """
    if name is not None:
        _show(read_plan(name), as_json)
        return
    presets, choices = _presets(), _choices()
    if as_json:
        print_json({"plans": presets, "choices": choices})
        return
    out.print(options_table("plan", presets), "", *_matrix(presets), sep="\n", highlight=False)
    for axis, rows in choices.items():
        out.print("", options_table(f"--{axis}", rows, heading=AXIS_DESCRIPTIONS[axis]), sep="\n", highlight=False)
    print_note("\nNext: strobe plans NAME\n      strobe compare GRAPH --plans NAME,NAME --ranks 4")


def _presets() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "summary": first_sentence(make),
            "options": default_options(make),
            "exact": make().exact,
            "plan": make().to_json(),
        }
        for name, make in PRESETS.items()
    ]


def _choices() -> dict[str, list[dict[str, Any]]]:
    return {
        axis: [
            {
                "name": name,
                "summary": first_sentence(choice) + ("" if choice.exact else " Approximate."),
                "options": {option: value for option, value in choice().to_json().items() if option != "name"},
                "exact": choice.exact,
            }
            for name, choice in strategies.items()
        ]
        for axis, strategies in AXES.items()
    }


def _matrix(presets: list[dict[str, Any]]) -> Iterator[RenderableType]:
    """The choices of every plan, a column per axis; axes on which at most one plan differs are listed below."""
    rows = {
        each["name"]: {axis: choice["name"] for axis, choice in choices_by_axis(each["plan"]).items()}
        for each in presets
    }
    usual = {axis: Counter(row[axis] for row in rows.values()).most_common(1)[0][0] for axis in AXIS_DESCRIPTIONS}
    exceptions = {
        axis: {name: row[axis] for name, row in rows.items() if row[axis] != usual[axis]} for axis in AXIS_DESCRIPTIONS
    }
    columns = [axis for axis in AXIS_DESCRIPTIONS if len(exceptions[axis]) > 1]
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in ("plan", *columns):
        table.add_column()
    table.add_row(*(f"[dim]{title}[/]" for title in ("plan", *columns)))
    for name, row in rows.items():
        table.add_row(f"[bold]{name}[/]", *(row[axis] for axis in columns))
    yield table
    common = [
        f"{axis} {usual[axis]}" + "".join(f" ({name}: {choice})" for name, choice in exceptions[axis].items())
        for axis in AXIS_DESCRIPTIONS
        if axis not in columns
    ]
    if common:
        yield f"[dim]all:[/] {', '.join(common)}"


def _show(plan: Plan, as_json: bool) -> None:
    values = plan.to_json()
    if as_json:
        print_json(values)
        return
    table = Table.grid(padding=(0, 2, 0, 0))
    for style in ("dim", "bold", ""):
        table.add_column(style=style)
    for axis, choice in choices_by_axis(values).items():
        options = {option: value for option, value in choice.items() if option != "name"}
        table.add_row(axis, choice["name"], format_options(first_sentence(AXES[axis][choice["name"]]), options))
    exact = "exact: it trains as one rank does" if plan.exact else "approximate: it trains almost as one rank does"
    out.print(table, f"\n{exact}", highlight=False)
