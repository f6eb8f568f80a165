"""Options that cut time into snapshots."""

from __future__ import annotations

from typing import Annotated, cast

from strobe.cli.options.groups import option
from strobe.errors import OptionError
from strobe.graph.ingest import ByColumn, ByFile, Calendar, Clock, EventsEach, Every, Into
from strobe.graph.ingest.clock import UNITS, Unit

CUT_PANEL = "How time is cut into snapshots (give one)"
EDGES_PANEL = "Edges and presence"

_EVERY = "A snapshot per interval: 30m, 12h, 7d, 2w, or a plain number in the table's own unit."
_PER = f"A snapshot per calendar unit, in UTC: {', '.join(UNITS)}."
_PRESENCE = "When a node is present: active (while it has an edge), seen (from its first edge on), always."
EveryOption = Annotated[str | None, option(_EVERY, metavar="LENGTH", panel=CUT_PANEL)]
PerOption = Annotated[str | None, option(_PER, metavar="UNIT", panel=CUT_PANEL)]
EventsOption = Annotated[int | None, option("A snapshot per N events, in order of time.", metavar="N", panel=CUT_PANEL)]
SnapshotsOption = Annotated[int | None, option("N snapshots of equal length in time.", metavar="N", panel=CUT_PANEL)]
LifeOption = Annotated[
    int | None, option("Snapshots that an edge lives for.", metavar="N", default="1", panel=EDGES_PANEL)
]
PresenceOption = Annotated[str | None, option(_PRESENCE, metavar="WHEN", default="active", panel=EDGES_PANEL)]


def make_clock(
    every: str | None,
    per: str | None,
    events: int | None,
    snapshots: int | None,
    column: str | int | None = None,
    per_file: bool = False,
) -> Clock | None:
    """Build the clock that the options describe, None without any.

    Raises:
        OptionError: more than one option describes a clock.
    """
    clocks: dict[str, Clock] = {}
    if every is not None:
        clocks["--every"] = Every.parse(every)
    if per is not None:
        clocks["--per"] = Calendar(cast(Unit, per))
    if events is not None:
        clocks["--events"] = EventsEach(events)
    if snapshots is not None:
        clocks["--snapshots"] = Into(snapshots)
    if column is not None:
        clocks["--by-column"] = ByColumn(column)
    if per_file:
        clocks["--per-file"] = ByFile()
    if len(clocks) > 1:
        raise OptionError(f"{' and '.join(clocks)} both cut time into snapshots: give one of them")
    return next(iter(clocks.values()), None)
