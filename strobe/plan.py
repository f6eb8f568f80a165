"""A plan: six choices, one per axis. The engine runs any plan that passes its check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, get_args

from strobe.batching import Batching
from strobe.batching import Full as FullBatch
from strobe.errors import OptionError, StrobeError, UnknownNameError
from strobe.exchange import Exchange, Halo, Relay
from strobe.options import short
from strobe.placement import Placement, TimeBlocks
from strobe.registry import make
from strobe.schedule import InOrder, Schedule
from strobe.store import Full as FullStore
from strobe.store import Store
from strobe.strategy import Fact, Need
from strobe.sync import AllReduce, Sync

_ON_ONE_RANK: frozenset[Fact] = frozenset(get_args(Fact)) - {"chunks", "node chunks", "sliding windows"}
"""It has everything, and nobody to wait for."""


class PlanError(StrobeError):
    """Choices of a plan that do not go together: all of them, each with what would mend it."""


@dataclass(frozen=True)
class Conflict:
    """A choice that lacks what it needs."""

    axis: str
    choice: str
    need: Need

    def __str__(self) -> str:
        return f"{self.axis} {self.choice} needs {self.need.fact}: {self.need.why}. Choose {self.need.fix}."


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a graph is trained on: a value that survives JSON. Without choices: what one rank does."""

    store: Store = field(default_factory=FullStore)
    placement: Placement = field(default_factory=TimeBlocks)
    batching: Batching = field(default_factory=FullBatch)
    exchange: Exchange = field(default_factory=lambda: Exchange(structure=Halo(), time=Relay()))
    schedule: Schedule = field(default_factory=InOrder)
    sync: Sync = field(default_factory=AllReduce)

    def axes(self) -> Iterator[tuple[str, Any]]:
        """(name of the axis, choice), in order."""
        return ((field.name, getattr(self, field.name)) for field in fields(self))

    @property
    def exact(self) -> bool:
        """Whether it trains as one rank would with the same batches."""
        return all(choice.exact for _, choice in self.axes())

    @property
    def own_batches(self) -> bool:
        """Whether a batch is computed whole by one rank; else all ranks share every batch."""
        return "batches per rank" in self.batching.gives

    def conflicts(self, num_ranks: int) -> list[Conflict]:
        """What does not go together on so many ranks."""
        facts: set[Fact] = {fact for _, choice in self.axes() for fact in choice.gives}
        if num_ranks == 1:
            facts |= _ON_ONE_RANK
        return [
            Conflict(axis, str(choice), need)
            for axis, choice in self.axes()
            for need in choice.needs
            if need.fact not in facts
        ]

    def check(self, num_ranks: int) -> None:
        """Raises PlanError with all conflicts at once."""
        found = self.conflicts(num_ranks)
        if found:
            lines = "\n".join(f"- {conflict}" for conflict in found)
            raise PlanError(f"the plan does not fit together on {num_ranks} ranks:\n{lines}")

    def to_json(self) -> dict[str, Any]:
        return {axis: choice.to_json() for axis, choice in self.axes()}

    @classmethod
    def from_json(cls, values: Any) -> Plan:
        """Make a plan from what ``to_json`` gives, or from what a file holds; axes that are absent have their defaults.

        Raises:
            StrobeError: the values are not those of a plan; the message names the axis and the option.
        """
        axes = [axis.name for axis in fields(cls)]
        if not isinstance(values, Mapping):
            raise OptionError(f"a plan is an object with the axes {', '.join(axes)}, not {short(values)}")
        for axis in values:
            if axis in ("structure", "time"):
                raise OptionError(f'{axis} belongs to "exchange": {{"structure": …, "time": …}}')
            if axis not in axes:
                raise UnknownNameError("axis of a plan", axis, axes)
        try:
            return cls(**{axis: make(axis, value) for axis, value in values.items()})
        except RecursionError:
            raise OptionError("the choices of a plan are nested too deeply") from None

    def __str__(self) -> str:
        return "\n".join(f"{axis:<9}  {choice}" for axis, choice in self.axes())
