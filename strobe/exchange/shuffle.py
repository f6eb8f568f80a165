"""Time exchange that sends cells to the owner of their sequence and the outputs back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from strobe.comm import Comm
from strobe.comm.rows import Route
from strobe.exchange.base import (
    PartitionedWindow,
    TimeCall,
    TimeEncoder,
    TimeExchange,
    TimeInputs,
    TimeStage,
    concat_inputs,
    encode,
    split_inputs,
)
from strobe.exchange.traffic import Traffic, active_cells, window_flow
from strobe.exchange.transfer import FreshExchange, RowExchange, receive_rows
from strobe.ops.dense.rows import select_rows
from strobe.ops.sparse.csr import IntArray
from strobe.ops.time.sequences import Sequences
from strobe.strategy import Fact

KIND = "shuffle"


@dataclass(frozen=True, kw_only=True)
class Shuffle(TimeExchange):
    """Send cells to the owner of their sequence, which encodes it whole, and the outputs back. Exact.

    Cost: two rows per cell that is not at its sequence's owner, and as many gradients.
    """

    name: ClassVar[str] = "shuffle"

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("gathered sequences",)

    def columns_sent(self, call: TimeCall) -> tuple[int, int]:
        return 0, call.columns + call.out_columns

    def traffic(
        self, window: PartitionedWindow, calls: Sequence[TimeCall], *, dtype: torch.dtype, continues_state: bool
    ) -> Traffic:
        traffic = Traffic(window.comm.num_ranks)
        moves = ((owner, window.sequence_owner[nodes]) for nodes, owner in active_cells(window))
        flow = window_flow(moves, window.comm.num_ranks)
        for call in calls:
            traffic.add(KIND, flow, call.columns * dtype.itemsize)
            traffic.add(KIND, flow.backward, call.out_columns * dtype.itemsize)
            traffic.moved_bytes += 2 * (call.columns + call.out_columns) * dtype.itemsize
        return traffic

    def start(self, window: PartitionedWindow) -> TimeStage:
        nodes, owners = window.nodes, list(window.owners)
        return ShuffleTimeStage(
            window.comm, nodes, owners, window.sequence_owner, window.device, window.time_row_exchange
        )


class ShuffleTimeStage(TimeStage):
    """Encodes the sequences that this rank owns. Its state: the encoder's, for those sequences."""

    def __init__(
        self,
        comm: Comm,
        nodes: Sequence[IntArray],
        owners: Sequence[IntArray],
        sequence_owner: IntArray,
        device: torch.device,
        row_exchange: RowExchange | None = None,
    ) -> None:
        self.row_exchange = FreshExchange(comm) if row_exchange is None else row_exchange
        slots = np.cumsum(sequence_owner == comm.rank) - 1
        encoders = [sequence_owner[present] for present in nodes]
        local = [owner == comm.rank for owner in owners]
        encoded = [(rank == comm.rank) & (owner >= 0) for rank, owner in zip(encoders, owners, strict=True)]
        self.sequences = Sequences.of(
            [slots[present[mask]] for present, mask in zip(nodes, encoded, strict=True)],
            int((sequence_owner == comm.rank).sum()),
            device,
        )
        to = np.concatenate([np.empty(0, np.int64), *(rank[mask] for rank, mask in zip(encoders, local, strict=True))])
        source = np.concatenate(
            [np.empty(0, np.int64), *(owner[mask] for owner, mask in zip(owners, encoded, strict=True))]
        )
        self.route_to_owner, self._in = _build_route(comm.rank, to, source, device)
        self.route_from_owner, self._out = _build_route(comm.rank, source, to, device)

    def run(self, encoder: TimeEncoder, x: TimeInputs, state: Any | None) -> tuple[Tensor, Any, list[Tensor]]:
        tokens: list[Tensor] = []
        rows = self._append_received(self.route_to_owner, concat_inputs(x), tokens)
        out, state = encode(encoder, split_inputs(select_rows(rows, self._in), x), state, self.sequences)
        out = select_rows(self._append_received(self.route_from_owner, out, tokens), self._out)
        return out, state, tokens

    def _append_received(self, route: Route, rows: Tensor, tokens: list[Tensor]) -> Tensor:
        """Append received rows to local ones."""
        transfer = self.row_exchange.start_transfer(route, rows, kind=KIND)
        if transfer is None:
            return rows
        received, token = receive_rows(transfer, rows)
        tokens.append(token)
        return torch.cat([rows, received])


def _build_route(rank: int, to: IntArray, source: IntArray, device: torch.device) -> tuple[Route, Tensor]:
    """Build a route from the destination of each local row and the source of each needed row.

    Returns:
        The route, and the index of each needed row among local rows followed by received rows.
    """
    send = {int(r): torch.from_numpy(np.flatnonzero(to == r)).to(device) for r in np.unique(to) if r != rank}
    receive = {int(r): int((source == r).sum()) for r in np.unique(source) if r != rank}
    at = np.empty(len(source), np.int64)
    at[source == rank] = np.flatnonzero(to == rank)
    first = len(to)
    for r, rows in sorted(receive.items()):
        at[source == r] = first + np.arange(rows)
        first += rows
    return Route(send, receive), torch.from_numpy(at).to(device)
