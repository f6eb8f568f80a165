"""Exchange axis: how rows owned by other ranks arrive. Two strategies, one per stage: structure and time."""

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
from strobe.exchange.dry_run import dry_run
from strobe.exchange.traffic import Traffic
from strobe.exchange.transfer import FreshExchange, RowExchange
from strobe.format import file_size, pluralize
from strobe.ops.sparse.csr import IntArray
from strobe.ops.time.sequences import Sequences
from strobe.strategy import Fact, Need, Strategy


class TimeEncoder(Protocol):
    """Encodes each node's cells in order of time."""

    def encode(self, x: Any, state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        """Encode cells. The result may depend on nothing but the arguments: callers permute cells.

        Args:
            x: inputs, [C, F], or a tuple of such tensors.
            state: the state of the previous window; None starts afresh.
            sequences: the cells of each node, in order of time.

        Returns:
            Outputs of all cells, [C, F'], and the state after them.
        """
        ...


TimeInputs = tuple[Tensor, ...]
"""Inputs of a time stage, [C, *] each."""


def encode(encoder: TimeEncoder, x: TimeInputs, state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
    """Call an encoder with its only input, or with a tuple of several."""
    return encoder.encode(x[0] if len(x) == 1 else x, state, sequences)


def concat_inputs(x: TimeInputs) -> Tensor:
    """Concatenate inputs to one matrix of rows."""
    return x[0] if len(x) == 1 else torch.cat(x, 1)


def split_inputs(rows: Tensor, like: TimeInputs) -> TimeInputs:
    """Split rows into inputs with the widths of ``like``."""
    return (rows,) if len(like) == 1 else rows.split([each.shape[1] for each in like], 1)


class TimeCall(Protocol):
    """A model's call of a time stage: the widths of its inputs, its outputs and a node's state (0 without one)."""

    @property
    def columns(self) -> int: ...
    @property
    def out_columns(self) -> int: ...
    @property
    def state_columns(self) -> int: ...
    @property
    def has_row_state(self) -> bool: ...


class TimeStage(ABC):
    """A time stage over this rank's cells of a window."""

    @abstractmethod
    def run(self, encoder: TimeEncoder, x: TimeInputs, state: Any | None) -> tuple[Tensor, Any, list[Tensor]]:
        """Run an encoder over this rank's cells.

        Args:
            encoder: the time encoder.
            x: inputs of this rank's cells.
            state: what ``run`` returned for the previous window; None at the first.

        Returns:
            Outputs of this rank's cells, the state for the next window, and tokens to attach to the loss.
        """


@dataclass(frozen=True, kw_only=True)
class StructureExchange(Strategy):
    """How the structure stage gets rows of neighbors owned by other ranks."""

    sends_per_snapshot: ClassVar[bool] = False
    """Whether the rows of each snapshot are sent separately, if the convolution can yield."""

    @property
    def prefetch(self) -> bool:
        """Whether features of the next step are fetched while this one computes."""
        return False

    @property
    def gather_sequences(self) -> bool:
        """Whether all cells of a sampled node are computed by the rank that owns its newest one."""
        return False

    def cache_hops(self, hops: int) -> int:
        """Depth of the k-hop cache for a model that reads ``hops`` sparse products deep."""
        return hops

    def check_cache_size(self, num_bytes: int, free_bytes: int, hops: int) -> None:
        """Check that the k-hop cache fits in memory.

        Raises:
            OptionError: if ``num_bytes`` exceeds ``free_bytes``.
        """
        if num_bytes > free_bytes:
            raise OptionError(
                f"{describe_cache(hops)} takes {file_size(num_bytes)}, but only {file_size(free_bytes)} are free: "
                "use more ranks and exchange structure cached, or batching full or windows"
            )

    def make_row_exchange(self, comm: Comm) -> RowExchange:
        """The row exchange of one window, for all passes over it."""
        return FreshExchange(comm)


def describe_cache(hops: int) -> str:
    """Describe the k-hop cache in an error message."""
    return f"the k-hop cache of a rank's nodes ({pluralize(hops, 'hop')})"


class PartitionedWindow(Protocol):
    """Owners of all cells of a window, as a time stage needs them. A rank knows all owners, but only its own rows."""

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
        """Owner of each present node's cell; -1 for cells that are left out."""
        ...

    @property
    def home(self) -> npt.NDArray[np.int16]:
        """Rank that holds each node's state before the window, [N]; -1 if there is none."""
        ...

    @property
    def sequence_owner(self) -> IntArray:
        """Owner of each sequence as a whole, [N]."""
        ...

    @property
    def time_row_exchange(self) -> RowExchange:
        """The row exchange of the time stage."""
        ...


@dataclass(frozen=True, kw_only=True)
class TimeExchange(Strategy):
    """How the time stage continues sequences that change ranks. Unused if every sequence is whole."""

    def for_encoder(self, encoder: TimeEncoder | TimeCall) -> TimeExchange:
        """The strategy to use for an encoder: this one, unless it cannot handle the encoder."""
        del encoder
        return self

    def columns_sent(self, call: TimeCall) -> tuple[int, int]:
        """Columns that a stage sends, for placements that weigh cuts.

        Returns:
            Columns per cut of a sequence, and per cell that is not at the owner of its sequence.
        """
        del call
        return 0, 0

    def traffic(
        self, window: PartitionedWindow, calls: Sequence[TimeCall], *, dtype: torch.dtype, continues_state: bool
    ) -> Traffic:
        """Predict what all ranks send in a forward and backward pass through time stages.

        The default runs the stage of every rank on zeros, which is right for every strategy without a pipeline. A
        strategy whose messages follow from cell owners can count them, which is much faster; a wrapper returns the
        traffic of the wrapped strategy.

        Args:
            window: a window whose sequences change ranks, on any rank.
            calls: the time stages of a pass that this strategy handles.
            dtype: of the rows.
            continues_state: whether states come from an earlier window, without gradients.
        """
        traffic = Traffic(window.comm.num_ranks)
        for rank in range(window.comm.num_ranks):
            for call in calls:
                ledger = dry_run(self, window, rank, call, dtype=dtype, continues_state=continues_state)
                traffic.add_rank(rank, ledger)
        return traffic

    @abstractmethod
    def start(self, window: PartitionedWindow) -> TimeStage:
        """Build the time stage over this rank's cells of a window."""

    def make_row_exchange(self, comm: Comm) -> RowExchange:
        """The row exchange of one window's time stage, for all passes over it."""
        return FreshExchange(comm)


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """The exchange strategies of both stages."""

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
