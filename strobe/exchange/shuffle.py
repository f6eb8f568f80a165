"""Cells go to the one owner of their sequence, and what it says about them comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from strobe.comm import Comm
from strobe.comm.rows import Route
from strobe.exchange.base import Columns, TimeEncoder, TimeExchange, Timing, Window, apart, encode, side_by_side
from strobe.exchange.delivery import Courier, Fresh, arrivals
from strobe.ops.csr import IntArray
from strobe.ops.picked import picked
from strobe.ops.sequences import Sequences
from strobe.strategy import Fact

KIND = "shuffle"


@dataclass(frozen=True, kw_only=True)
class Shuffle(TimeExchange):
    """Cells go to the one owner of their sequence, which encodes it whole; results come back. Exact.

    Cost: two rows per cell that is not with its sequence's owner, and as many gradients.
    """

    name: ClassVar[str] = "shuffle"

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("gathered sequences",)

    def travels(self, columns: int, out_columns: int, state_columns: int) -> tuple[int, int]:
        del state_columns
        return 0, columns + out_columns

    def start(self, window: Window) -> Timing:
        nodes, owners = window.nodes, list(window.owners)
        return Shuffling(window.comm, nodes, owners, window.of_sequence, window.device, window.time_courier)


class Shuffling(Timing):
    """An encoder over the sequences that this rank owns. State: the encoder's own, of those sequences."""

    def __init__(
        self,
        comm: Comm,
        nodes: Sequence[IntArray],
        owners: Sequence[IntArray],
        of_sequence: IntArray,
        device: torch.device,
        courier: Courier | None = None,
    ) -> None:
        self.courier = Fresh(comm) if courier is None else courier
        slots = np.cumsum(of_sequence == comm.rank) - 1
        held = [of_sequence[present] for present in nodes]
        mine = [owner == comm.rank for owner in owners]
        theirs = [(at == comm.rank) & (owner >= 0) for at, owner in zip(held, owners, strict=True)]
        self.sequences = Sequences.of(
            [slots[present[here]] for present, here in zip(nodes, theirs, strict=True)],
            int((of_sequence == comm.rank).sum()),
            device,
        )
        to = np.concatenate([np.empty(0, np.int64), *(at[own] for at, own in zip(held, mine, strict=True))])
        source = np.concatenate([np.empty(0, np.int64), *(who[here] for who, here in zip(owners, theirs, strict=True))])
        self.there, self._in = _route(comm.rank, to, source, device)
        self.back, self._out = _route(comm.rank, source, to, device)

    def run(self, encoder: TimeEncoder, x: Columns, state: Any | None) -> tuple[Tensor, Any, list[Tensor]]:
        tokens: list[Tensor] = []
        rows = self._with_others(self.there, side_by_side(x), tokens)
        out, state = encode(encoder, apart(picked(rows, self._in), x), state, self.sequences)
        out = picked(self._with_others(self.back, out, tokens), self._out)
        return out, state, tokens

    def _with_others(self, route: Route, rows: Tensor, tokens: list[Tensor]) -> Tensor:
        """Own rows, then what others send."""
        delivery = self.courier.delivery(route, rows, kind=KIND)
        if delivery is None:
            return rows
        arrived, token = arrivals(delivery, rows)
        tokens.append(token)
        return torch.cat([rows, arrived])


def _route(rank: int, to: IntArray, source: IntArray, device: torch.device) -> tuple[Route, Tensor]:
    """Rows of this rank and whom each goes to; cells it wants, t-major, and whence each comes. The route, and where
    each wanted row stands among its own rows followed by what arrives."""
    send = {int(r): torch.from_numpy(np.flatnonzero(to == r)).to(device) for r in np.unique(to) if r != rank}
    receive = {int(r): int((source == r).sum()) for r in np.unique(source) if r != rank}
    at = np.empty(len(source), np.int64)
    at[source == rank] = np.flatnonzero(to == rank)
    first = len(to)
    for r, rows in sorted(receive.items()):
        at[source == r] = first + np.arange(rows)
        first += rows
    return Route(send, receive), torch.from_numpy(at).to(device)
