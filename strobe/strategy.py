"""Base class of the strategies of all axes, and the facts that strategies give and need."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, ClassVar, Literal

from strobe.options import check_options, option_types

Fact = Literal[
    "whole snapshots",
    "whole sequences",
    "replicas",
    "local inputs",
    "batches per rank",
    "independent steps",
    "divergent weights",
    "fresh rows",
    "chunks",
    "node chunks",
    "sliding windows",
    "sampled cells",
    "fetched inputs",
    "gathered sequences",
    "streaming batches",
]
"""A property of a plan that one strategy gives and another may need."""


@dataclass(frozen=True)
class FactInfo:
    """What a fact means, and whether every plan has it on one rank, whatever its strategies give."""

    meaning: str
    holds_on_one_rank: bool = True


FACTS: dict[Fact, FactInfo] = {
    "whole snapshots": FactInfo("every snapshot is on one rank"),
    "whole sequences": FactInfo("every sequence is on one rank"),
    "replicas": FactInfo("every rank has all cells"),
    "local inputs": FactInfo("a rank reads all inputs of its batch without communication"),
    "batches per rank": FactInfo("every rank has its own batches"),
    "independent steps": FactInfo("ranks take optimizer steps at their own pace"),
    "divergent weights": FactInfo("weights may differ between ranks until they are averaged"),
    "fresh rows": FactInfo("remote rows have their current values"),
    "chunks": FactInfo("cells are grouped into chunks", holds_on_one_rank=False),
    "node chunks": FactInfo("nodes are grouped into chunks, for all snapshots", holds_on_one_rank=False),
    "sliding windows": FactInfo("windows slide and are built while training", holds_on_one_rank=False),
    "sampled cells": FactInfo("a batch has seed nodes, and cells sampled for them"),
    "fetched inputs": FactInfo("a rank fetches the inputs of the cells that its batch samples"),
    "gathered sequences": FactInfo("rows of all cells of a node are on one rank"),
    "streaming batches": FactInfo("batches can be made of snapshots as they arrive", holds_on_one_rank=False),
}


@dataclass(frozen=True)
class Need:
    """A fact that a strategy requires.

    Args:
        fact: the required fact.
        why: the reason, for the error message.
        fix: strategies to choose where the fact does not hold.
    """

    fact: Fact
    why: str
    fix: str


@dataclass(frozen=True, kw_only=True)
class Strategy(ABC):
    """A choice on one axis: an immutable value whose fields are its configuration. State lives in sessions it starts.

    Raises:
        OptionError: a field has a value of another type.
    """

    name: ClassVar[str]
    exact: ClassVar[bool] = True
    """Whether training is equivalent to one rank. A strategy that is not exact documents how far it may deviate."""

    def __post_init__(self) -> None:
        hints = option_types(type(self))
        check_options(self.name, {name: getattr(self, name) for name in hints}, hints)

    @property
    def needs(self) -> tuple[Need, ...]:
        """Facts that other strategies of the plan must give."""
        return ()

    @property
    def gives(self) -> tuple[Fact, ...]:
        """Facts that hold if this strategy is part of the plan."""
        return ()

    def to_json(self) -> dict[str, Any]:
        """Return name and fields; wrapped strategies are converted, too. ``registry.make_strategy`` is the inverse."""
        options = self._options().items()
        return {"name": self.name, **{name: v.to_json() if isinstance(v, Strategy) else v for name, v in options}}

    def _options(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __str__(self) -> str:
        options = [f"{name} {value}" for name, value in self._options().items() if value is not None]
        return f"{self.name} ({', '.join(options)})" if options else self.name


STRATEGIES = {
    "store": {"full": "store.full:Full", "delta": "store.delta.strategy:Delta"},
    "placement": {
        "hash": "placement.hash:Hash",
        "metis": "placement.metis:Metis",
        "metis-per-snapshot": "placement.metis:MetisPerSnapshot",
        "metis-so-far": "placement.metis:MetisSoFar",
        "greedy": "placement.metis:Greedy",
        "online": "placement.online:Online",
        "by-snapshot": "placement.by_number:BySnapshot",
        "by-sequence": "placement.by_number:BySequence",
        "snapshot-then-sequence": "placement.by_number:SnapshotThenSequence",
        "time-blocks": "placement.time_blocks:TimeBlocks",
        "chunks": "placement.chunks:Chunks",
        "load-aware": "placement.load_aware:LoadAware",
        "replicated": "placement.by_number:Replicated",
    },
    "batching": {
        "full": "batching.snapshots:Full",
        "fused": "batching.fused:Fused",
        "windows": "batching.snapshots:Windows",
        "vertices": "batching.vertices:Vertices",
        "groups": "batching.snapshots:Groups",
        "hybrid": "batching.vertices:Hybrid",
        "trapezoid": "batching.trapezoid:Trapezoid",
        "sampled": "batching.sampled:Sampled",
    },
    "structure": {
        "none": "exchange.none:NoExchange",
        "halo": "exchange.halo:Halo",
        "stale": "exchange.stale:Stale",
        "cached": "exchange.cached:Cached",
        "overlapped": "exchange.overlap.strategy:Overlapped",
        "fetch": "exchange.fetch:Fetch",
    },
    "time": {
        "none": "exchange.none:NoTimeExchange",
        "relay": "exchange.relay.strategy:Relay",
        "shuffle": "exchange.shuffle:Shuffle",
        "stale": "exchange.stale:StaleTime",
    },
    "schedule": {
        "in-order": "schedule.in_order:InOrder",
        "greedy": "schedule.greedy:Greedy",
        "optimal": "schedule.optimal:Optimal",
        "balanced": "schedule.optimal:Balanced",
        "free-running": "schedule.in_order:FreeRunning",
        "random-split": "schedule.in_order:RandomSplit",
    },
    "sync": {"all-reduce": "sync.all_reduce:AllReduce", "average": "sync.average:Average"},
}
"""Axis -> name -> "module:Class" below ``strobe``. The exchange axis has two stages: structure and time."""


def load_strategy(path: str) -> Any:
    """Import the class of a path such as ``store.full:Full``."""
    module, _, name = path.partition(":")
    return getattr(import_module(f"strobe.{module}"), name)


def lazy_strategies(package: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of an axis's package, which imports strategies when they are first used.

    Args:
        package: name of the package, such as ``strobe.placement``.
    """
    prefix = package.removeprefix("strobe.") + "."
    paths = [path for choices in STRATEGIES.values() for path in choices.values() if path.startswith(prefix)]
    classes = {path.partition(":")[2]: path for path in paths}

    def load_attribute(name: str) -> Any:
        if name not in classes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return load_strategy(classes[name])

    return load_attribute
