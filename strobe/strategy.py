"""What all choices on all axes have in common: they are values, they say what they need and what they give."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from strobe.options import check_options, hints_of

Fact = Literal[
    "whole snapshots",
    "whole sequences",
    "replicas",
    "inputs at hand",
    "batches per rank",
    "free steps",
    "weights apart",
    "fresh rows",
    "chunks",
    "node chunks",
    "sliding windows",
    "drawn cells",
    "inputs on demand",
    "gathered sequences",
]
"""What one choice may give and another need: every snapshot, every sequence is on one rank; every rank has all cells;
a rank reads whatever its batch needs without asking others; every rank has batches of its own; ranks take steps at
their own pace; between one agreement and the next ranks may have different weights; rows of
others are as they are now; cells are grouped into chunks; nodes are, for all time; windows slide and are made anew; a
batch has targets, and cells drawn for them; a rank gets the inputs of whatever cells its batch has drawn; rows of a
node's cells meet on one rank. On one rank all but those that name chunks and windows always hold."""


@dataclass(frozen=True)
class Need:
    """A fact that a choice cannot do without: why, and what to choose where it does not hold."""

    fact: Fact
    why: str
    fix: str


@dataclass(frozen=True, kw_only=True)
class Strategy(ABC):
    """A choice on one axis. Its fields are its configuration; what changes while training lives elsewhere."""

    name: ClassVar[str]
    exact: ClassVar[bool] = True
    """Whether training gives what one rank would; what is not exact says in its docstring how far off it may be."""

    def __post_init__(self) -> None:
        hints = hints_of(type(self))
        check_options(self.name, {name: getattr(self, name) for name in hints}, hints)

    @property
    def needs(self) -> tuple[Need, ...]:
        return ()

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ()

    def to_json(self) -> dict[str, Any]:
        """The name and all fields, choices among them as theirs: what the registry makes an equal choice from."""
        told = self._options().items()
        return {"name": self.name, **{name: v.to_json() if isinstance(v, Strategy) else v for name, v in told}}

    def _options(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __str__(self) -> str:
        told = [f"{name} {value}" for name, value in self._options().items() if value is not None]
        return f"{self.name} ({', '.join(told)})" if told else self.name
