"""The fourth axis: how inputs owned elsewhere arrive. Two choices, one for each stage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from strobe.comm import Comm
from strobe.errors import OptionError
from strobe.exchange.delivery import Courier, Fresh
from strobe.numbers import file_size, number_of
from strobe.ops.csr import IntArray
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

    one_by_one: ClassVar[bool] = False
    """Whether rows of each snapshot travel by themselves, where a convolution lets them."""

    def keeps(self, hops: int) -> int:
        """How many products away cells are kept for a model that reads so far, where a rank trains on what it keeps."""
        return hops

    def check_kept(self, num_bytes: int, free_bytes: int, hops: int) -> None:
        """Refuses to keep more than there is room for."""
        if num_bytes > free_bytes:
            raise OptionError(
                f"{kept_in_words(hops)} take {file_size(num_bytes)}, and there is room for {file_size(free_bytes)}: "
                "take more ranks and exchange structure cached, or batching full or windows"
            )

    def courier(self, comm: Comm) -> Courier:
        """Who brings them to a window, in all passes over it."""
        return Fresh(comm)


def kept_in_words(hops: int) -> str:
    """What a rank keeps, for people."""
    return f"the cells of a rank's nodes and what they read within {number_of(hops, 'sparse product')}"


class Window(Protocol):
    """Who has which cells of a window, as a time stage needs to know it; a rank sees all owners, not all rows."""

    @property
    def comm(self) -> Comm: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def nodes(self) -> Sequence[IntArray]:
        """Present nodes of each snapshot, ascending."""
        ...

    @property
    def owners(self) -> Sequence[IntArray]:
        """The owner of each of their cells; -1 for those that take no part."""
        ...

    @property
    def home(self) -> npt.NDArray[np.int16]:
        """Where each node's state is before the window, [N]; -1 where there is none."""
        ...

    @property
    def of_sequence(self) -> IntArray:
        """The one owner that each whole sequence would have, [N]."""
        ...

    @property
    def time_courier(self) -> Courier:
        """Who brings the rows of others, where the time stage wants any."""
        ...


@dataclass(frozen=True, kw_only=True)
class TimeExchange(Strategy):
    """How the time stage goes on where a sequence changes ranks. Where none does, nobody asks."""

    def fitting(self, encoder: TimeEncoder) -> TimeExchange:
        """The choice that works for an encoder: this one, unless it cannot."""
        del encoder
        return self

    def travels(self, columns: int, out_columns: int, state_columns: int) -> tuple[int, int]:
        """How many numbers a stage of these widths sends where a sequence is cut, and for a cell that is not with its
        sequence's owner."""
        del columns, out_columns, state_columns
        return 0, 0

    @abstractmethod
    def start(self, window: Window) -> Timing:
        """A time stage over this rank's cells of a window."""

    def courier(self, comm: Comm) -> Courier:
        """Who brings rows of cells to the owners of their sequences and back, in all passes over a window."""
        return Fresh(comm)


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
