"""Every choice of every axis by name: for the command line and for JSON, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strobe import batching, exchange, placement, schedule, store, sync
from strobe.errors import OptionError, UnknownNameError
from strobe.options import check_options, hints_of, short
from strobe.strategy import Strategy

AXES: dict[str, dict[str, type[Strategy]]] = {
    axis: {choice.name: choice for choice in choices}
    for axis, choices in {
        "store": (store.Full, store.Delta),
        "placement": (
            placement.Hash,
            placement.Metis,
            placement.MetisPerSnapshot,
            placement.MetisSoFar,
            placement.Greedy,
            placement.Online,
            placement.BySnapshot,
            placement.BySequence,
            placement.SnapshotThenSequence,
            placement.TimeBlocks,
            placement.Chunks,
            placement.LoadAware,
            placement.Replicated,
        ),
        "batching": (
            batching.Full,
            batching.Fused,
            batching.Windows,
            batching.Vertices,
            batching.Groups,
            batching.Hybrid,
            batching.Trapezoid,
            batching.Sampled,
        ),
        "structure": (
            exchange.Nothing,
            exchange.Halo,
            exchange.Stale,
            exchange.Cached,
            exchange.Overlapped,
            exchange.Fetch,
        ),
        "time": (exchange.Stay, exchange.Relay, exchange.Shuffle, exchange.StaleTime),
        "schedule": (
            schedule.InOrder,
            schedule.Greedy,
            schedule.Optimal,
            schedule.Balanced,
            schedule.FreeRunning,
            schedule.RandomSplit,
        ),
        "sync": (sync.AllReduce, sync.Average),
    }.items()
}
"""By axis; exchange has two, one for each stage."""


def make(axis: str, value: Any) -> Any:
    """A choice from its name, or from its name and fields as ``to_json`` gives them.

    A field that is itself a choice is one of the same axis, and made alike.
    """
    if axis == "exchange":
        if not isinstance(value, Mapping) or set(value) != {"structure", "time"}:
            raise OptionError(f"an exchange is one for the structure and one for the time stage, not {short(value)}")
        return exchange.Exchange(**{stage: make(stage, choice) for stage, choice in value.items()})
    if axis not in AXES:
        raise UnknownNameError("axis", axis, [*AXES, "exchange"])
    if not isinstance(value, str | Mapping):
        raise OptionError(f"{axis} is the name of a choice, or an object with its name and options, not {short(value)}")
    options = {"name": value} if isinstance(value, str) else dict(value)
    name = options.pop("name", None)
    if not isinstance(name, str) or name not in AXES[axis]:
        raise UnknownNameError(f"{axis} choice" if axis in ("structure", "time") else axis, name, AXES[axis])
    chosen = AXES[axis][name]
    hints = hints_of(chosen)
    for option, inner in options.items():
        if is_choice(hints.get(option)) and not isinstance(inner, Strategy):
            options[option] = make(axis, inner)
    check_options(f"{axis} {name}", options, hints)
    return chosen(**options)


def is_choice(hint: Any) -> bool:
    """Whether an option of this type is a choice itself, one that is wrapped."""
    return isinstance(hint, type) and issubclass(hint, Strategy)
