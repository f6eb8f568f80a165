"""``strobe compare``: several plans on the same work."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from strobe.cli.console import out
from strobe.cli.data import DataDirOption
from strobe.cli.option_groups import grouped, said
from strobe.cli.plan_options import RANKS_PANEL, DeadlineOption, read_plan, split_plans
from strobe.cli.run_options import TRAIN_PANEL, AsJsonOption, GraphArgument, QuietOption
from strobe.cli.train import RunInterruptedError
from strobe.cli.training_options import USUAL_MODEL, MachineOptions, TrainingOptions, WhatOptions
from strobe.errors import OptionError
from strobe.numbers import number_of

if TYPE_CHECKING:
    from strobe.engine.compare import Compared
    from strobe.plan import Plan


@grouped
def compare(
    graph: GraphArgument,
    *,
    plans: Annotated[
        str,
        typer.Option(
            metavar="PLAN,PLAN,…",
            help="Names of `strobe plans`, with options if they have any (relay:groups=4), or JSON files.",
            rich_help_panel=RANKS_PANEL,
        ),
    ] = "pss,pts,pss-ts,relay",
    ranks: Annotated[
        int, typer.Option(metavar="N", help="Processes on this machine.", rich_help_panel=RANKS_PANEL)
    ] = 2,
    deadline: DeadlineOption = None,
    what: WhatOptions,
    epochs: Annotated[
        int,
        typer.Option(
            help="Passes over the training snapshots; the first is not measured.", rich_help_panel=TRAIN_PANEL
        ),
    ] = 5,
    training: TrainingOptions,
    machine: MachineOptions,
    data_dir: DataDirOption = None,
    as_json: AsJsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Train by several plans, one after the other, and compare what they cost.

    All do the same work: the same graph, model, task, seed and settings, a few epochs without evaluations. Nothing is
    kept. A plan that does not fit is named with the reason; the others go on.

    `strobe compare social --ranks 4`

    `strobe compare social --plans relay,relay:groups=1,pts --ranks 4 --model dcrnn --epochs 10`

    `strobe compare social --plans relay,mine.json --json > compared.json`

    An exact plan comes to the same loss as any other that takes the same steps.
    """
    chosen, model = _plans(plans), what.model or USUAL_MODEL
    settings = {"epochs": epochs, "deadline_s": deadline, **said(training), **said(machine)}
    results, whole = _compared(
        quiet,
        graph=graph,
        plans=chosen,
        ranks=ranks,
        data_dir=data_dir,
        **what.chosen(),
        **{name: value for name, value in settings.items() if value is not None},
    )
    if as_json:
        from strobe.io.atomic import without_nan

        told = {"graph": graph, "model": model, "ranks": ranks, "epochs": epochs}
        told["plans"] = [each.to_json() for each in results]
        typer.echo(json.dumps(without_nan(told), allow_nan=False))
    else:
        from strobe.cli.compare_table import compare_table

        head = f"{model} on {graph}: {number_of(ranks, 'rank')}, {number_of(epochs, 'epoch')}"
        out.print(Text("\n".join([head, "", *compare_table(results)])), soft_wrap=True)
    if not whole:
        raise RunInterruptedError(f"stopped: {len(results)} of {number_of(len(chosen), 'plan')} were compared")
    if all(each.reason is not None for each in results):
        raise typer.Exit(2)


def _plans(text: str) -> dict[str, Plan]:
    """Plans by what they are called; one that is asked for again has a number."""
    found: dict[str, Plan] = {}
    for name in split_plans(text):
        again = sum(known.partition(" ")[0] == name for known in found)
        found[f"{name} ({again + 1})" if again else name] = read_plan(name)
    if not found:
        raise OptionError("say which plans to compare, such as --plans pts,relay")
    return found


def _compared(quiet: bool, *, ranks: int, **chosen: Any) -> tuple[list[Compared], bool]:
    """What the plans came to, and whether that is all of them: Ctrl-C ends it with those that are done."""
    from strobe.cli.run_progress import watched
    from strobe.engine.compare import compare as compare_plans
    from strobe.engine.compare import with_differences

    done: list[Compared] = []
    with watched(quiet, ranks) as progress:

        def on_plan(name: str, number: int, total: int) -> None:
            progress.title = f"{name} ({number}/{total})"

        try:
            found = compare_plans(**chosen, ranks=ranks, progress=progress, on_plan=on_plan, on_result=done.append)
        except KeyboardInterrupt:
            return with_differences(done), False
    return found, True
