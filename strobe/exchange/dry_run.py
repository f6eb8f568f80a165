"""Dry run of a time stage on a rank that does not exist, which counts its messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from strobe.comm import NO_RANK, Ledger, MessagePipeline, SingleRankComm, Work
from strobe.comm.base import CompletedWork
from strobe.comm.rows import attach_tokens
from strobe.ops.sparse.csr import IntArray
from strobe.ops.time.sequences import Sequences

if TYPE_CHECKING:
    from strobe.exchange.base import PartitionedWindow, TimeCall, TimeExchange
    from strobe.exchange.transfer import RowExchange


class FakeComm(SingleRankComm):
    """A rank of a process group that does not exist: messages are counted and not sent, received rows are zeros."""

    def __init__(self, rank: int, num_ranks: int) -> None:
        super().__init__()
        self.rank, self.num_ranks = rank, num_ranks

    def all_to_all_rows_async(
        self, sends: Mapping[int, Tensor], counts: Mapping[int, int], like: Tensor, *, kind: str
    ) -> Sequence[Work]:
        self.count_sent(sends, kind)
        return [CompletedWork(self.zeros(count, like, kind)) for _, count in sorted(counts.items()) if count]

    def open_pipeline(self, receives: Mapping[tuple[int, int], int], like: Tensor, *, kind: str) -> MessagePipeline:
        return _FakePipeline(self, receives, like, kind)

    def count_sent(self, sends: Mapping[int, Tensor], kind: str) -> None:
        """Count messages that are not empty."""
        for rows in sends.values():
            if len(rows):
                self.ledger.count_sent(kind, rows.nbytes, len(rows))

    def zeros(self, num_rows: int, like: Tensor, kind: str) -> Tensor:
        """Count a message and return its rows."""
        rows = like.new_zeros(num_rows, *like.shape[1:])
        self.ledger.count_received(kind, rows.nbytes)
        return rows

    def all_gather_object(self, value: Any, *, kind: str) -> list[Any]:
        return [value] * self.num_ranks


class _FakePipeline(MessagePipeline):
    def __init__(self, comm: FakeComm, receives: Mapping[tuple[int, int], int], like: Tensor, kind: str) -> None:
        self._comm, self._receives, self._like, self._kind = comm, receives, like, kind

    def send(self, key: int, rows: Mapping[int, Tensor]) -> None:
        self._comm.count_sent(rows, self._kind)

    def receive(self, key: int, src: int) -> Tensor:
        return self._comm.zeros(self._receives[key, src], self._like, self._kind)


def dry_run(
    exchange: TimeExchange,
    window: PartitionedWindow,
    rank: int,
    call: TimeCall,
    *,
    dtype: torch.dtype,
    continues_state: bool,
) -> Ledger:
    """Run a time stage of ``rank`` forward and backward on zeros.

    Args:
        exchange: the strategy.
        window: the window, on any rank.
        rank: the rank whose messages are counted.
        call: the widths of the stage.
        dtype: of the rows.
        continues_state: whether states come from an earlier window, without gradients.

    Returns:
        What the rank sends and receives, in the phases ``forward`` and ``backward``.
    """
    comm, encoder = FakeComm(rank, window.comm.num_ranks), _ZeroEncoder(call)
    home = window.home if continues_state else np.full_like(window.home, NO_RANK)
    local = _RankWindow(comm, window.nodes, window.owners, home, window, exchange.make_row_exchange(comm))
    state = None
    if continues_state:
        with torch.no_grad():
            earlier = _window_before(local)
            state = exchange.start(earlier).run(encoder, earlier.zeros(call.columns, dtype), None)[1]
        state = pytree.tree_map(lambda leaf: leaf.detach() if isinstance(leaf, Tensor) else leaf, state)
        comm.ledger.clear()
    with torch.enable_grad():
        x = local.zeros(call.columns, dtype)
        with comm.ledger.phase("forward"):
            out, _, tokens = exchange.start(local).run(encoder, x, state)
        with comm.ledger.phase("backward"):
            attach_tokens(out.sum(), tokens).backward()
    return comm.ledger


@dataclass(frozen=True, eq=False)
class _RankWindow:
    """A window of which only the owners matter."""

    comm: FakeComm
    nodes: Sequence[IntArray]
    owners: Sequence[IntArray]
    home: npt.NDArray[np.int16]
    window: PartitionedWindow
    time_row_exchange: RowExchange

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def sequence_owner(self) -> IntArray:
        return self.window.sequence_owner

    def zeros(self, columns: int, dtype: torch.dtype) -> tuple[Tensor]:
        """Inputs of the rank's cells."""
        num_cells = sum(int((owner == self.comm.rank).sum()) for owner in self.owners)
        return (torch.zeros(num_cells, columns, dtype=dtype, requires_grad=True),)


def _window_before(window: _RankWindow) -> _RankWindow:
    """A window of one snapshot, after which the states are at ``window.home``."""
    nodes = np.flatnonzero(window.home != NO_RANK)
    home = np.full_like(window.home, NO_RANK)
    return _RankWindow(window.comm, [nodes], [window.home[nodes]], home, window.window, window.time_row_exchange)


class _ZeroEncoder:
    """Has the widths of an encoder; outputs depend on inputs and states, so that gradients reach both."""

    def __init__(self, call: TimeCall) -> None:
        self.has_row_state, self._call = call.has_row_state, call

    def encode(self, x: Tensor, state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        if state is None:
            state = x.new_zeros(sequences.num_slots, self._call.state_columns)
        return x.sum(1, keepdim=True).expand(-1, self._call.out_columns) + state.sum(), state
