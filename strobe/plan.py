"""A plan: one strategy for each of the six axes. The engine runs any plan that passes ``Plan.check``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from strobe.batching import Batching
from strobe.batching import Full as FullBatch
from strobe.errors import OptionError, StrobeError, UnknownNameError
from strobe.exchange import Exchange, Halo, Relay
from strobe.options import short_repr
from strobe.placement import Placement, TimeBlocks
from strobe.registry import make_strategy
from strobe.schedule import InOrder, Schedule
from strobe.store import Full as FullStore
from strobe.store import Store
from strobe.strategy import FACTS, Need
from strobe.sync import AllReduce, Sync


class PlanError(StrobeError):
    """Strategies of a plan conflict; the message lists every conflict with a fix."""


@dataclass(frozen=True)
class Conflict:
    """A strategy whose need no strategy of the plan meets."""

    axis: str
    choice: str
    need: Need

    def __str__(self) -> str:
        return f"{self.axis} {self.choice} needs {self.need.fact}: {self.need.why}. Choose {self.need.fix}."


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a graph is trained: one strategy per axis; survives JSON.

    Args:
        store: how snapshots are kept in memory.
        placement: which rank owns each cell and each sequence.
        batching: which cells each optimizer step trains.
        exchange: how rows owned by other ranks arrive, in the structure and in the time stage.
        schedule: in which order, and on which rank, batches run.
        sync: how ranks combine gradients or weights.
    """

    store: Store = field(default_factory=FullStore)
    placement: Placement = field(default_factory=TimeBlocks)
    batching: Batching = field(default_factory=FullBatch)
    exchange: Exchange = field(default_factory=lambda: Exchange(structure=Halo(), time=Relay()))
    schedule: Schedule = field(default_factory=InOrder)
    sync: Sync = field(default_factory=AllReduce)

    def axes(self) -> Iterator[tuple[str, Any]]:
        """Yield (axis, strategy) in the order of the fields."""
        return ((field.name, getattr(self, field.name)) for field in fields(self))

    @property
    def exact(self) -> bool:
        """Whether training is equivalent to one rank with the same batches."""
        return all(choice.exact for _, choice in self.axes())

    @property
    def per_rank_batches(self) -> bool:
        """Whether one rank computes a whole batch; otherwise all ranks share every batch."""
        return "batches per rank" in self.batching.gives

    def conflicts(self, num_ranks: int) -> list[Conflict]:
        """Return the needs that no strategy meets on ``num_ranks`` ranks."""
        facts = {fact for _, choice in self.axes() for fact in choice.gives}
        if num_ranks == 1:
            facts |= {fact for fact, info in FACTS.items() if info.holds_on_one_rank}
        return [
            Conflict(axis, str(choice), need)
            for axis, choice in self.axes()
            for need in choice.needs
            if need.fact not in facts
        ]

    def check(self, num_ranks: int) -> None:
        """Check that the strategies go together on ``num_ranks`` ranks.

        Raises:
            PlanError: they do not; the message lists all conflicts.
        """
        conflicts = self.conflicts(num_ranks)
        if conflicts:
            lines = "\n".join(f"- {conflict}" for conflict in conflicts)
            raise PlanError(f"the plan does not fit together on {num_ranks} ranks:\n{lines}")

    def to_json(self) -> dict[str, Any]:
        return {axis: choice.to_json() for axis, choice in self.axes()}

    @classmethod
    def from_json(cls, values: Any) -> Plan:
        """Make a plan from the output of ``to_json``; absent axes have their defaults.

        Raises:
            StrobeError: ``values`` do not describe a plan; the message names the axis and the option.
        """
        axes = [axis.name for axis in fields(cls)]
        if not isinstance(values, Mapping):
            raise OptionError(f"a plan is an object with the axes {', '.join(axes)}, not {short_repr(values)}")
        for axis in values:
            if axis in ("structure", "time"):
                raise OptionError(f'{axis} belongs to "exchange": {{"structure": …, "time": …}}')
            if axis not in axes:
                raise UnknownNameError("axis of a plan", axis, axes)
        try:
            return cls(**{axis: make_strategy(axis, value) for axis, value in values.items()})
        except RecursionError:
            raise OptionError("the choices of a plan are nested too deeply") from None

    def __str__(self) -> str:
        return "\n".join(f"{axis:<9}  {choice}" for axis, choice in self.axes())
