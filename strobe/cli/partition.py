"""``strobe partition``: who would own which cells, and what that would cost, without training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from strobe.cli.console import out
from strobe.cli.data import DataDirOption
from strobe.cli.option_groups import grouped
from strobe.cli.picture import check_place, picture_option, write_picture
from strobe.cli.plan_options import RANKS_PANEL, vary
from strobe.cli.run_options import AsJsonOption, DeviceOption, GraphArgument, QuietOption, SeedOption, WindowOption
from strobe.cli.training_options import WhatOptions

if TYPE_CHECKING:
    from strobe.engine.partition import Partition

USUAL_PICTURE = Path("partition.svg")


@grouped
def partition(
    graph: GraphArgument,
    *,
    by: Annotated[
        str,
        typer.Option(
            metavar="CHOICE",
            help="Who owns which cell: a placement that `strobe plans` names, such as metis or chunks:per_rank=8.",
            rich_help_panel=RANKS_PANEL,
        ),
    ] = "chunks",
    ranks: Annotated[
        int,
        typer.Option(metavar="N", help="How many ranks there would be. None is started.", rich_help_panel=RANKS_PANEL),
    ],
    structure: Annotated[
        str | None,
        typer.Option(
            metavar="CHOICE",
            help="How rows of neighbours would arrive.",
            show_default="halo",
            rich_help_panel=RANKS_PANEL,
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="CHOICE",
            help="How sequences that change ranks would go on.",
            show_default="relay",
            rich_help_panel=RANKS_PANEL,
        ),
    ] = None,
    what: WhatOptions,
    window: WindowOption = None,
    seed: SeedOption = None,
    picture: Annotated[Path | None, picture_option(USUAL_PICTURE)] = None,
    device: DeviceOption = None,
    data_dir: DataDirOption = None,
    as_json: AsJsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show who would own which cells, and what that would cost, without training.

    Cells are placed as training would place them. For every rank it counts what there is to compute, and predicts
    what it sends in an epoch of training, to the byte; the last line tells what the default would send. Bytes depend
    on the model. The picture shows owners over time.

    `strobe partition social --ranks 8`

    `strobe partition social --by metis --ranks 4 --model wd-gcn --model-option layers=2 -o metis.svg`

    What suits is trained with

    `strobe train social --ranks 8 --placement chunks`
    """
    place = picture or (None if as_json else USUAL_PICTURE)
    if place is not None:
        check_place(place, USUAL_PICTURE)
    settings = {"window": window, "seed": seed, "device": device}
    found = _found(
        quiet,
        graph=graph,
        ranks=ranks,
        choices={axis: text for axis, text in (("placement", by), ("structure", structure), ("time", time)) if text},
        data_dir=data_dir,
        **what.chosen(),
        **{name: value for name, value in settings.items() if value is not None},
    )
    if as_json:
        typer.echo(json.dumps(found.to_json(), allow_nan=False))
    else:
        _show(found)
    if place is not None:
        from strobe.engine.partition_svg import partition_svg

        write_picture(partition_svg(found), place, quiet)


def _found(quiet: bool, *, graph: str, ranks: int, choices: dict[str, str], **chosen: object) -> Partition:
    from strobe.cli.run_progress import watched
    from strobe.engine.partition import partition as partition_graph
    from strobe.plan import Plan

    plan = vary(Plan(), choices)
    with watched(quiet) as progress:
        return partition_graph(
            graph,
            placement=plan.placement,
            exchange=plan.exchange,
            ranks=ranks,
            progress=progress,
            **chosen,  # type: ignore[arg-type]
        )


def _show(found: Partition) -> None:
    from strobe.cli.partition_table import partition_head, partition_lines, partition_table

    out.print(Text("\n".join([*partition_head(found), ""])), soft_wrap=True)
    out.print(partition_table(found))
    out.print(Text("\n".join(["", *partition_lines(found)])), soft_wrap=True)
