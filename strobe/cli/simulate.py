"""``strobe simulate``: what plans would take on clusters that need not exist."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from strobe.cli.console import out
from strobe.cli.data import DataDirOption
from strobe.cli.option_groups import grouped, said
from strobe.cli.picture import check_place, picture_option, write_picture
from strobe.cli.plan_options import RANKS_PANEL, read_plan, split_plans
from strobe.cli.run_options import AsJsonOption, GraphArgument, QuietOption, SeedOption, WindowOption
from strobe.cli.training_options import MachineOptions, WhatOptions
from strobe.errors import OptionError

if TYPE_CHECKING:
    from strobe.plan import Plan
    from strobe.planner.network import Network
    from strobe.planner.simulate import Simulation

USUAL_PICTURE = Path("simulated.svg")
HERE = "here"
MOST_RANKS = 16_384
"""What is counted for every two ranks would fill the memory of most machines beyond that."""


@grouped
def simulate(
    graph: GraphArgument,
    *,
    plans: Annotated[
        str,
        typer.Option(
            "--plan",
            metavar="PLAN,PLAN,…",
            help="Names of `strobe plans`, with options if they have any (relay:groups=4), or JSON files.",
            rich_help_panel=RANKS_PANEL,
        ),
    ] = "relay",
    ranks: Annotated[
        str,
        typer.Option(
            metavar="N,N..N,…",
            help="How many ranks there would be: 8, or 4,8,100, or 4..1024, which doubles from 4 up to 1024. None is "
            "started.",
            rich_help_panel=RANKS_PANEL,
        ),
    ] = "1..64",
    network: Annotated[
        str,
        typer.Option(
            metavar="LINK:OPTION=VALUE,…",
            help="How hosts are connected, as above; here: all ranks on this machine, whose own messages are timed.",
            rich_help_panel=RANKS_PANEL,
        ),
    ] = "10gbit",
    what: WhatOptions,
    window: WindowOption = None,
    seed: SeedOption = None,
    picture: Annotated[Path | None, picture_option(USUAL_PICTURE)] = None,
    machine: MachineOptions,
    data_dir: DataDirOption = None,
    as_json: AsJsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Say how long an epoch would take on more ranks than there are, by a few seconds of timing here.

    Passes over parts of the graph are timed on this machine. What every rank would compute and send follows from
    the plan, what messages take from a model of the network. A rank is taken to compute as this machine does; nothing
    is taken to be sent while a rank computes. The picture shows efficiency and epochs over ranks.

    `strobe simulate social --ranks 4..1024`

    `strobe simulate social --plan relay,psg,metis --network 25gbit:ranks_per_host=8 -m dcrnn -o plans.svg`

    `strobe simulate social --plan relay --ranks 1,2 --network here`

    **A network** is 1gbit, 10gbit, 25gbit, 100gbit, or the bandwidth of a host's link (40Gbit, 5GB). After it, with
    commas, what is not as usual:

    - latency=10us: of a message between hosts

    - ranks_per_host=8: they share the link; as many passes are timed at once as this machine has cores for

    - inside=20GB, inside_latency=5us: among the ranks of a host

    - hosts_per_rack=16, oversubscribed=4: a rack's links together are 4 times its uplink

    - all_reduce=tree: how ranks add up, else in a ring

    `--network 25gbit:latency=10us,ranks_per_host=8,inside=20GB,all_reduce=tree`
    """
    place = picture or (None if as_json else USUAL_PICTURE)
    if place is not None:
        check_place(place, USUAL_PICTURE)
    settings = {"window": window, "seed": seed, **said(machine)}
    found = _found(
        quiet,
        graph=graph,
        plans=_plans(plans),
        ranks=read_ranks(ranks),
        network=_network(network),
        data_dir=data_dir,
        **what.chosen(),
        **{name: value for name, value in settings.items() if value is not None},
    )
    if as_json:
        typer.echo(json.dumps(found.to_json(), allow_nan=False))
    else:
        _show(found)
    if not found.found:
        raise typer.Exit(2)
    if place is not None:
        from strobe.planner.simulated_svg import simulated_svg

        write_picture(simulated_svg(found), place, quiet)


def read_ranks(text: str) -> list[int]:
    """Numbers of ranks in order, from ``8``, ``4,8,100``, ``4..1024`` (doubling) or several of these."""
    found: set[int] = set()
    for part in filter(None, map(str.strip, text.split(","))):
        found.update(_numbers(part))
    if not found:
        raise OptionError("say how many ranks there would be, such as --ranks 8 or --ranks 4..1024")
    if max(found) > MOST_RANKS:
        raise OptionError(f"{max(found):,} ranks are too many to count what they send: at most {MOST_RANKS:,}")
    return sorted(found)


def _numbers(part: str) -> list[int]:
    """One number of ranks, or those of a range."""
    ends = [end.strip() for end in part.split("..")]
    if len(ends) > 2 or not all(end.isascii() and end.isdigit() for end in ends):
        raise OptionError(f"ranks are written 8, or 4,8,100, or 4..1024 (doubling from 4 up to 1024), not {part!r}")
    first, last = int(ends[0]), int(ends[-1])
    if first < 1:
        raise OptionError(f"there is at least 1 rank, not {first}")
    if last < first:
        raise OptionError(f"ranks go from few to many: write {last}..{first}, not {part}")
    from strobe.planner.simulator import doubling

    return [*doubling(first, last)]


def _plans(text: str) -> dict[str, Plan]:
    found = {name: read_plan(name) for name in split_plans(text)}
    if not found:
        raise OptionError("say which plans to simulate, such as --plan relay,psg")
    return found


def _network(text: str) -> Network | None:
    """None: that of this machine."""
    from strobe.planner.network import Network

    return None if text.strip().lower() == HERE else Network.read(text)


def _found(quiet: bool, **chosen: object) -> Simulation:
    from strobe.cli.run_progress import watched
    from strobe.planner.simulate import simulate as simulate_plans

    with watched(quiet) as progress:
        return simulate_plans(**chosen, progress=progress)  # type: ignore[arg-type]


def _show(found: Simulation) -> None:
    from strobe.cli.simulate_table import simulate_head, simulate_lines, simulate_tables

    out.print(Text("\n".join([*simulate_head(found), ""])), soft_wrap=True)
    for name, table in simulate_tables(found).items():
        out.print(Text(name, style="bold"), soft_wrap=True)
        out.print(table)
        out.print()
    out.print(Text("\n".join(simulate_lines(found))), soft_wrap=True)
