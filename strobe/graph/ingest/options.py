"""Options of a table of events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Required, TypedDict, get_args

from strobe.errors import OptionError
from strobe.graph.features import FeatureProvider
from strobe.graph.ingest.clock import MAX_SNAPSHOTS, ByColumn, Clock
from strobe.graph.ingest.columns import Ids, TimeUnit, check_column_refs
from strobe.graph.ingest.nodes import NodeTable
from strobe.ops.sparse.csr import Parallel

Presence = Literal["active", "seen", "always"]

DEFAULT_MAX_NODES = 100_000_000
"""Default limit of nodes if ids are not renumbered."""

_ALLOWED_VALUES: dict[str, tuple[str, ...]] = {
    "ids": get_args(Ids),
    "time_unit": get_args(TimeUnit),
    "repeated": get_args(Parallel),
    "presence": get_args(Presence),
}


class IngestKeywords(TypedDict, total=False):
    """Fields of ``IngestOptions``, as keywords."""

    src: Required[str | int]
    dst: Required[str | int]
    clock: Required[Clock]
    time: str | int | None
    weight: str | int | None
    ids: Ids | None
    time_unit: TimeUnit | None
    directed: bool
    life: int
    repeated: Parallel | None
    self_loops: bool
    presence: Presence
    nodes: NodeTable | None
    features: FeatureProvider | None
    renumber: bool
    num_nodes: int | None
    max_nodes: int
    max_snapshots: int
    count_pairs: bool
    info: Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class IngestOptions:
    """Options of a table of events; ``ingest`` documents each."""

    src: str | int
    dst: str | int
    clock: Clock
    time: str | int | None = None
    weight: str | int | None = None
    ids: Ids | None = None
    time_unit: TimeUnit | None = None
    directed: bool = True
    life: int = 1
    repeated: Parallel | None = None
    self_loops: bool = True
    presence: Presence = "active"
    nodes: NodeTable | None = None
    features: FeatureProvider | None = None
    renumber: bool = True
    num_nodes: int | None = None
    max_nodes: int = DEFAULT_MAX_NODES
    max_snapshots: int = MAX_SNAPSHOTS
    count_pairs: bool = False
    info: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.clock, Clock):
            raise OptionError(
                f"the clock must be one of strobe.graph.ingest, such as Calendar('month'), not {self.clock!r}"
            )
        if self.src is None or self.dst is None:
            raise OptionError("an event has a source and a destination: say which columns they are (src=…, dst=…)")
        check_column_refs(src=self.src, dst=self.dst, time=self.time, weight=self.weight)
        if self.clock.needs_time and self.time is None:
            raise OptionError("this way of cutting snapshots needs a time column: say which one it is (time=…, --time)")
        if not isinstance(self.life, int) or self.life < 1:
            raise OptionError(f"an edge lives for at least one snapshot, and a whole number, not {self.life!r}")
        for name in ("num_nodes", "max_nodes", "max_snapshots"):
            value = getattr(self, name)
            if not (isinstance(value, int) and value >= 0) and (name, value) != ("num_nodes", None):
                raise OptionError(f"{name} must be a whole number, not {value!r}")
        for name, allowed in _ALLOWED_VALUES.items():
            value = getattr(self, name)
            if value is not None and value not in allowed:
                raise OptionError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
        if self.repeated == "sum" and self.weight is None:
            raise OptionError("repeated='sum' needs a weight column; to count repeated edges use 'count'")
        if self.ids == "string" and not self.renumber:
            raise OptionError("ids that are strings cannot stay as they are: leave renumber on")
        if self.num_nodes is not None and self.renumber:
            raise OptionError("num_nodes only makes sense with renumber=False")
        if self.nodes is not None and self.nodes.features and self.features is not None:
            raise OptionError("features come from the node table or are derived, not both")

    @property
    def parallel(self) -> Parallel:
        """Treatment of repeated edges by default: sum weights, or count events without weights."""
        if self.repeated is not None:
            return self.repeated
        return "count" if self.weight is None else "sum"

    def columns(self) -> list[str | int]:
        """Return all columns of the table that are read."""
        mark = self.clock.column if isinstance(self.clock, ByColumn) else None
        return [column for column in (self.src, self.dst, self.time, self.weight, mark) if column is not None]
