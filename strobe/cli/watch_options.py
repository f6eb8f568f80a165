"""The options of ``strobe watch``: its source, and how ranks share the work."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strobe.cli.clock_options import EventsOption, EveryOption, LifeOption, PerOption, PresenceOption, clock_from
from strobe.cli.ingest_options import (
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
    column_of,
)
from strobe.cli.plan_options import RANKS_PANEL, DeadlineOption, read_plan, vary
from strobe.errors import OptionError

if TYPE_CHECKING:
    from strobe.graph.follow import Following
    from strobe.graph.ingest.options import Options
    from strobe.plan import Plan

_COLUMNS = "Columns"
_WATCH = "Watching"


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """What a source of events is like. A graph needs nothing to be said about it."""

    src: Annotated[
        str | None, typer.Option(help="Source column, by name or position from 0.", rich_help_panel=_COLUMNS)
    ] = None
    dst: Annotated[str | None, typer.Option(help="Destination column.", rich_help_panel=_COLUMNS)] = None
    time: TimeOption = None
    weight: WeightOption = None
    ids: IdsOption = None
    time_unit: TimeUnitOption = None
    table: Annotated[str | None, typer.Option(help="The table of an SQLite database.", rich_help_panel=_COLUMNS)] = None
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

    def said(self) -> dict[str, Any]:
        """What is not as usual."""
        usual = {field.name: field.default for field in fields(self)}
        return {name: value for name, value in asdict(self).items() if value != usual[name]}

    def follow(self, source: str, into: Path, data_dir: str | None) -> Following:
        """Begins to follow a source, or goes on with it."""
        from strobe.graph.follow import follow
        from strobe.graph.ingest import TextOptions

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

    def _options(self) -> Options | None:
        from strobe.graph.ingest.options import Options

        if self.src is None and self.dst is None:
            if self.said():
                raise OptionError(f"{', '.join(_flags(self.said()))}: of events, say which columns are --src and --dst")
            return None
        if self.src is None or self.dst is None:
            raise OptionError("events have two ends: say which columns are --src and --dst")
        column = None if self.by_column is None else column_of(self.by_column)
        clock = clock_from(self.every, self.per, self.events, None, column, self.per_file)
        if clock is None:
            raise OptionError(
                "say how to cut time into snapshots: --per month, --every 7d, --events 10000, --by-column NAME or "
                "--per-file"
            )
        chosen: dict[str, Any] = {
            "ids": self.ids,
            "time_unit": self.time_unit,
            "repeated": self.repeated,
            "presence": self.presence,
            "life": self.life,
        }
        return Options(
            src=column_of(self.src),
            dst=column_of(self.dst),
            clock=clock,
            time=None if self.time is None else column_of(self.time),
            weight=None if self.weight is None else column_of(self.weight),
            directed=not self.undirected,
            self_loops=self.self_loops,
            **{name: value for name, value in chosen.items() if value is not None},
        )


@dataclass(frozen=True, kw_only=True)
class WatchingOptions:
    """How a source is watched."""

    fit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Snapshots to wait for before training begins: scales are fitted to them, and they are not judged.",
            show_default="8",
            rich_help_panel=_WATCH,
        ),
    ] = None
    passes: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="How often each window is learnt from.", show_default="1", rich_help_panel=_WATCH
        ),
    ] = None
    poll: Annotated[
        float, typer.Option(metavar="SECONDS", help="How often the source is looked at.", rich_help_panel=_WATCH)
    ] = 2.0
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Nothing more will come: the last snapshot is complete, and the run ends with it.",
            rich_help_panel=_WATCH,
        ),
    ] = False
    snapshots: Annotated[
        int | None,
        typer.Option(metavar="N", help="Stop after so many.", show_default="never", rich_help_panel=_WATCH),
    ] = None


@dataclass(frozen=True, kw_only=True)
class WatchRankOptions:
    """How many ranks train, and how they share the work."""

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
            show_default="the one for snapshots that arrive",
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

    def chosen(self, earlier: dict[str, Any] | None, passes: int | None) -> dict[str, Any]:
        """What the run is told; what nobody said is as in the run that is resumed, if one is."""
        ranks = self.ranks
        if ranks is None and earlier is not None:
            ranks = int(earlier["ranks"])
        found = {"plan": self._plan(earlier, passes), "ranks": ranks, "deadline_s": self.deadline}
        return {name: value for name, value in found.items() if value is not None}

    def _plan(self, earlier: dict[str, Any] | None, passes: int | None) -> Plan | None:
        from dataclasses import replace

        from strobe.batching import Sampled
        from strobe.plan import Plan
        from strobe.presets import ARRIVING

        varied = {axis: text for axis in ("store", "placement", "batching") if (text := getattr(self, axis))}
        if self.plan is None and not varied and passes is None:
            return None
        plan = read_plan(self.plan or ARRIVING) if earlier is None or self.plan else Plan.from_json(earlier["plan"])
        plan = vary(plan, varied)
        if passes is not None and isinstance(plan.batching, Sampled):
            plan = replace(plan, batching=replace(plan.batching, passes=passes))
        return plan


def _flags(said: dict[str, Any]) -> list[str]:
    return [f"--{name.replace('_', '-')}" for name in said]
