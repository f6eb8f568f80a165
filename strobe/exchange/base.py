"""The fourth axis: how inputs owned elsewhere arrive. Two choices, one for each stage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from strobe.ops.sequences import Sequences
from strobe.strategy import Fact, Need, Strategy


class TimeEncoder(Protocol):
    """Something that reads each node's cells in order of time."""

    def encode(self, x: Any, state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        """Outputs of all cells from inputs [C, F], and the state after them; ``state`` None means a fresh start.

        It reads nothing else of the cells: whoever calls it may have put them in another order.
        """
        ...


Columns = tuple[Tensor, ...]
"""The inputs of a time stage, [C, *] each."""


def encode(encoder: TimeEncoder, x: Columns, state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
    """Calls an encoder with one input, or with all of them as a tuple."""
    return encoder.encode(x[0] if len(x) == 1 else x, state, sequences)


def side_by_side(x: Columns) -> Tensor:
    """Inputs as one matrix, whose rows can travel."""
    return x[0] if len(x) == 1 else torch.cat(x, 1)


def apart(rows: Tensor, like: Columns) -> Columns:
    """The inputs again, of other cells."""
    return (rows,) if len(like) == 1 else rows.split([each.shape[1] for each in like], 1)


class Timing(ABC):
    """A time stage over the cells of a window that this rank computes, whoever has the rest of their sequences."""

    @abstractmethod
    def run(self, encoder: TimeEncoder, x: Columns, state: Any | None) -> tuple[Tensor, Any, list[Tensor]]:
        """Outputs of this rank's cells, the state it keeps for the next window, and tokens to tie to the loss."""


@dataclass(frozen=True, kw_only=True)
class StructureExchange(Strategy):
    """How the structure stage gets rows of neighbours owned by other ranks."""


@dataclass(frozen=True, kw_only=True)
class TimeExchange(Strategy):
    """How the time stage goes on where a sequence changes ranks."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """Both choices."""

    structure: StructureExchange
    time: TimeExchange

    @property
    def exact(self) -> bool:
        return self.structure.exact and self.time.exact

    @property
    def needs(self) -> tuple[Need, ...]:
        return self.structure.needs + self.time.needs

    @property
    def gives(self) -> tuple[Fact, ...]:
        return self.structure.gives + self.time.gives

    def to_json(self) -> dict[str, Any]:
        return {"structure": self.structure.to_json(), "time": self.time.to_json()}

    def __str__(self) -> str:
        return f"structure {self.structure}, time {self.time}"
