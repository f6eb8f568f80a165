"""Option groups of ``strobe online``: the source of events, training, ranks."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from strobe.batching import Sampled
from strobe.cli.options.clock import EventsOption, EveryOption, LifeOption, PerOption, PresenceOption, make_clock
from strobe.cli.options.ingest import (
    ByColumnOption,
    DelimiterOption,
    EncodingOption,
    HeaderOption,
    IdsOption,
    PerFileOption,
    RepeatedOption,
    SelfLoopsOption,
    SkipBadRowsOption,
    TimeOption,
    TimeUnitOption,
    UndirectedOption,
    WeightOption,
    parse_column,
)
from strobe.cli.options.plan import RANKS_PANEL, DeadlineOption, override_choices, read_plan
from strobe.errors import OptionError
from strobe.graph.follow import Follower, follow
from strobe.graph.ingest import TextOptions
from strobe.graph.ingest.options import IngestOptions
from strobe.plan import Plan
from strobe.presets import DEFAULT_ONLINE

_COLUMNS_PANEL = "Columns"
_ONLINE_PANEL = "Online training"


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Columns and snapshots of a source of events. A saved graph needs none of these."""

    src: Annotated[
        str | None, typer.Option(help="Source column, by name or position from 0.", rich_help_panel=_COLUMNS_PANEL)
    ] = None
    dst: Annotated[str | None, typer.Option(help="Destination column.", rich_help_panel=_COLUMNS_PANEL)] = None
    time: TimeOption = None
    weight: WeightOption = None
    ids: IdsOption = None
    time_unit: TimeUnitOption = None
    table: Annotated[
        str | None, typer.Option(help="The table of an SQLite database.", rich_help_panel=_COLUMNS_PANEL)
    ] = None
    every: EveryOption = None
    per: PerOption = None
    events: EventsOption = None
    by_column: ByColumnOption = None
    per_file: PerFileOption = False
    undirected: UndirectedOption = False
    life: LifeOption = None
    repeated: RepeatedOption = None
    self_loops: SelfLoopsOption = True
    presence: PresenceOption = None
    delimiter: DelimiterOption = None
    header: HeaderOption = None
    encoding: EncodingOption = "utf-8"
    skip_bad_rows: SkipBadRowsOption = False

    def explicit(self) -> dict[str, Any]:
        """The options that differ from their defaults, by name."""
        defaults = {field.name: field.default for field in fields(self)}
        return {name: value for name, value in asdict(self).items() if value != defaults[name]}

    def follow(self, source: str, into: Path, data_dir: str | None) -> Follower:
        """Start to follow a source, or continue where the graph at ``into`` ends."""
        text = TextOptions(delimiter=self.delimiter, header=self.header, encoding=self.encoding)
        return follow(
            source,
            self._options(),
            into=into,
            table=self.table,
            text=text,
            skip_bad_rows=self.skip_bad_rows,
            data_dir=data_dir,
        )

    def _options(self) -> IngestOptions | None:
        if self.src is None and self.dst is None:
            if self.explicit():
                raise OptionError(f"{', '.join(_flags(self.explicit()))} need the columns of events: --src and --dst")
            return None
        if self.src is None or self.dst is None:
            raise OptionError("events have two ends: give the columns of both, --src and --dst")
        column = None if self.by_column is None else parse_column(self.by_column)
        clock = make_clock(self.every, self.per, self.events, None, column, self.per_file)
        if clock is None:
            raise OptionError(
                "choose how to cut time into snapshots: --per month, --every 7d, --events 10000, --by-column NAME or "
                "--per-file"
            )
        chosen: dict[str, Any] = {
            "ids": self.ids,
            "time_unit": self.time_unit,
            "repeated": self.repeated,
            "presence": self.presence,
            "life": self.life,
        }
        return IngestOptions(
            src=parse_column(self.src),
            dst=parse_column(self.dst),
            clock=clock,
            time=None if self.time is None else parse_column(self.time),
            weight=None if self.weight is None else parse_column(self.weight),
            directed=not self.undirected,
            self_loops=self.self_loops,
            **{name: value for name, value in chosen.items() if value is not None},
        )


@dataclass(frozen=True, kw_only=True)
class OnlineTrainingOptions:
    """How long to wait for snapshots, and how often to train on them."""

    fit_snapshots: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Snapshots to wait for before training begins: scales are fitted to them, and they are not evaluated.",
            show_default="8",
            rich_help_panel=_ONLINE_PANEL,
        ),
    ] = None
    passes: Annotated[
        int | None,
        typer.Option(metavar="N", help="Passes over each window.", show_default="1", rich_help_panel=_ONLINE_PANEL),
    ] = None
    poll: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Seconds between polls.", rich_help_panel=_ONLINE_PANEL),
    ] = 2.0
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="No more events will arrive: the last snapshot is complete, and the run ends with it.",
            rich_help_panel=_ONLINE_PANEL,
        ),
    ] = False
    snapshots: Annotated[
        int | None,
        typer.Option(metavar="N", help="Stop after N snapshots.", show_default="never", rich_help_panel=_ONLINE_PANEL),
    ] = None


@dataclass(frozen=True, kw_only=True)
class OnlineRankOptions:
    """The number of ranks, and the plan that divides the work among them."""

    ranks: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Processes on this machine that train together.",
            show_default="1",
            rich_help_panel=RANKS_PANEL,
        ),
    ] = None
    plan: Annotated[
        str | None,
        typer.Option(
            "--plan",
            metavar="NAME|FILE",
            help="A plan whose batches are sampled: a name of `strobe plans`, or a JSON file with a plan.",
            show_default=DEFAULT_ONLINE,
            rich_help_panel=RANKS_PANEL,
        ),
    ] = None
    store: Annotated[str | None, typer.Option(metavar="CHOICE", help="Such as full.", rich_help_panel=RANKS_PANEL)] = (
        None
    )
    placement: Annotated[
        str | None, typer.Option(metavar="CHOICE", help="Such as hash or greedy.", rich_help_panel=RANKS_PANEL)
    ] = None
    batching: Annotated[
        str | None,
        typer.Option(
            metavar="CHOICE", help="Such as sampled:size=4096,fanouts=10,5,history=6.", rich_help_panel=RANKS_PANEL
        ),
    ] = None
    deadline: DeadlineOption = None

    def to_arguments(self, earlier: dict[str, Any] | None, passes: int | None) -> dict[str, Any]:
        """The arguments of training; options not given are those of ``earlier``, the config of a resumed run."""
        ranks = self.ranks if self.ranks is not None or earlier is None else int(earlier["ranks"])
        arguments = {"plan": self._plan(earlier, passes), "ranks": ranks, "deadline_s": self.deadline}
        return {name: value for name, value in arguments.items() if value is not None}

    def _plan(self, earlier: dict[str, Any] | None, passes: int | None) -> Plan | None:
        choices = {axis: text for axis in ("store", "placement", "batching") if (text := getattr(self, axis))}
        if self.plan is None and not choices and passes is None:
            return None
        if self.plan is not None or earlier is None:
            plan = read_plan(self.plan or DEFAULT_ONLINE)
        else:
            plan = Plan.from_json(earlier["plan"])
        plan = override_choices(plan, choices)
        if passes is not None and isinstance(plan.batching, Sampled):
            plan = replace(plan, batching=replace(plan.batching, passes=passes))
        return plan


def _flags(options: dict[str, Any]) -> list[str]:
    return [f"--{name.replace('_', '-')}" for name in options]
