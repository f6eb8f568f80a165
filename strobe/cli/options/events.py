"""Options of tables of events, which ``strobe ingest`` and ``strobe online`` share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from strobe.cli.options.clock import (
    CUT_PANEL,
    EDGES_PANEL,
    EventsOption,
    EveryOption,
    LifeOption,
    PerOption,
    PresenceOption,
    make_clock,
)
from strobe.cli.options.groups import explicit_options, option
from strobe.errors import OptionError
from strobe.graph.ingest import TextOptions

COLUMNS_PANEL = "Columns"
FILES_PANEL = "Files and bad rows"

_IDS = "integer or string. \\[default: inferred from the first rows]"
_TIME_UNIT = "iso, s, ms or number. \\[default: inferred from the first rows]"
_REPEATED = (
    "How events of one edge within a snapshot are combined: count, sum, last or keep. "
    "\\[default: sum with weights, else count]"
)
_HEADER = "\\[default: yes if columns are given by name]"
SrcOption = Annotated[str | None, option("Source column, by name or position from 0.", panel=COLUMNS_PANEL)]
DstOption = Annotated[str | None, option("Destination column.", panel=COLUMNS_PANEL)]


@dataclass(frozen=True, kw_only=True)
class EventOptions:
    """Columns and files of events, and how they become edges of snapshots."""

    src: SrcOption = "src"
    dst: DstOption = "dst"
    time: Annotated[str | None, option("Time column.", panel=COLUMNS_PANEL)] = None
    weight: Annotated[str | None, option("Weight column.", panel=COLUMNS_PANEL)] = None
    ids: Annotated[str | None, option(_IDS, panel=COLUMNS_PANEL)] = None
    time_unit: Annotated[str | None, option(_TIME_UNIT, panel=COLUMNS_PANEL)] = None
    every: EveryOption = None
    per: PerOption = None
    events: EventsOption = None
    by_column: Annotated[str | None, option("A snapshot per value of this column.", panel=CUT_PANEL)] = None
    per_file: Annotated[bool, option("A snapshot per file, in the order given.", "--per-file", panel=CUT_PANEL)] = False
    undirected: Annotated[bool, option("Edges have no direction.", "--undirected", panel=EDGES_PANEL)] = False
    life: LifeOption = None
    repeated: Annotated[str | None, option(_REPEATED, panel=EDGES_PANEL)] = None
    self_loops: Annotated[bool, option("Keep self-loops.", panel=EDGES_PANEL)] = True
    presence: PresenceOption = None
    delimiter: Annotated[str | None, option("\\[default: inferred]", panel=FILES_PANEL)] = None
    header: Annotated[bool | None, option(_HEADER, "--header/--no-header", panel=FILES_PANEL)] = None
    encoding: Annotated[str, option("The encoding of text files.", panel=FILES_PANEL)] = "utf-8"
    skip_bad_rows: Annotated[
        bool, option("Skip bad rows, and write them to a file.", "--skip-bad-rows", panel=FILES_PANEL)
    ] = False

    @property
    def text(self) -> TextOptions:
        """How text files are read."""
        return TextOptions(delimiter=self.delimiter, header=self.header, encoding=self.encoding)

    def to_arguments(self, snapshots: int | None = None, also: str = "") -> dict[str, Any]:
        """The fields of ``IngestOptions``.

        Args:
            snapshots: number of snapshots of equal length.
            also: one more example of a clock, for the message.

        Raises:
            OptionError: a column of nodes is missing, or there is no clock.
        """
        if self.src is None or self.dst is None:
            raise OptionError("events have two ends: give the columns of both, --src and --dst")
        clock = make_clock(
            self.every, self.per, self.events, snapshots, parse_optional_column(self.by_column), self.per_file
        )
        if clock is None:
            raise OptionError(
                f"choose how to cut time into snapshots: --per month, --every 7d, --events 10000, {also}"
                "--by-column NAME or --per-file"
            )
        return explicit_options(
            src=parse_column(self.src),
            dst=parse_column(self.dst),
            time=parse_optional_column(self.time),
            weight=parse_optional_column(self.weight),
            clock=clock,
            directed=not self.undirected,
            self_loops=self.self_loops,
            ids=self.ids,
            time_unit=self.time_unit,
            repeated=self.repeated,
            presence=self.presence,
            life=self.life,
        )


def parse_column(text: str) -> str | int:
    """Parse a column: a position if the text is a number, else a name."""
    return int(text) if text.isascii() and text.isdigit() else text


def parse_optional_column(text: str | None) -> str | int | None:
    """Parse a column that may be missing."""
    return None if text is None else parse_column(text)
