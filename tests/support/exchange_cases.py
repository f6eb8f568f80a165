"""Reference tables of cell owners, and time stages over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from strobe.comm import NO_RANK, Comm
from strobe.comm.rows import attach_tokens
from strobe.models import time
from strobe.ops.sparse.csr import IntArray
from strobe.ops.time.sequences import Sequences
from tests.support.ranks import as_threads

StartStage = Callable[["Table", Comm], Any]
"""Starts the time stage of a window."""


@dataclass(frozen=True)
class ReferenceLeg:
    """The ``number``-th leg of a node's sequence: snapshots ``times`` on one rank."""

    rank: int
    node: int
    times: list[int]
    number: int
    source: int
    target: int


@dataclass(frozen=True)
class Table:
    """Owner of node v in snapshot t, ``rows[t][v]``: None if it is absent, NO_RANK if its cell is left out."""

    num_ranks: int
    num_nodes: int
    rows: list[list[int | None]]

    @property
    def nodes(self) -> list[IntArray]:
        """Present nodes of every snapshot."""
        return [np.array([v for v, owner in enumerate(row) if owner is not None], np.int64) for row in self.rows]

    @property
    def owners(self) -> list[IntArray]:
        """Owner of each present node's cell."""
        return [np.array([owner for owner in row if owner is not None], np.int16) for row in self.rows]

    def window(self, start: int, stop: int) -> Table:
        return replace(self, rows=self.rows[start:stop])

    def cells(self, rank: int | None = None) -> list[tuple[int, int]]:
        """(t, node) of all owned cells, t-major, or of those of one rank."""
        return [
            (t, v)
            for t, row in enumerate(self.rows)
            for v, owner in enumerate(row)
            if owner is not None and owner >= 0 and rank in (None, owner)
        ]

    def sequence(self, node: int) -> list[tuple[int, int]]:
        """(t, owner) of a node's owned cells, in order of time."""
        return [(t, owner) for t, row in enumerate(self.rows) if (owner := row[node]) is not None and owner >= 0]

    def homes(self) -> list[int]:
        """Owner of the last cell of each node; NO_RANK without cells."""
        return [self.sequence(v)[-1][1] if self.sequence(v) else NO_RANK for v in range(self.num_nodes)]

    def firsts(self) -> list[int]:
        """Owner of the first cell of each node."""
        return [self.sequence(v)[0][1] if self.sequence(v) else NO_RANK for v in range(self.num_nodes)]

    def legs(self, rank: int | None = None) -> list[ReferenceLeg]:
        """All legs by node and then by time, or those of one rank."""
        legs = []
        for node in range(self.num_nodes):
            parts = [
                (owner, [t for t, _ in part]) for owner, part in groupby(self.sequence(node), lambda cell: cell[1])
            ]
            ranks = [NO_RANK, *(owner for owner, _ in parts), NO_RANK]
            legs += [
                ReferenceLeg(owner, node, times, number, ranks[number], ranks[number + 2])
                for number, (owner, times) in enumerate(parts)
            ]
        return [leg for leg in legs if rank in (None, leg.rank)]

    def cuts_crossed(self) -> int:
        """Number of cut temporal edges: consecutive cells of a node on two ranks."""
        return sum(a != b for v in range(self.num_nodes) for (_, a), (_, b) in pairwise(self.sequence(v)))


@st.composite
def tables(
    draw: st.DrawFn, *, min_ranks: int = 1, max_nodes: int = 6, max_snapshots: int = 6, unowned: bool = False
) -> Table:
    """Random owners per cell; half of the tables visit ranks in one order, as time blocks do."""
    num_ranks = draw(st.integers(min_ranks, 4))
    num_nodes = draw(st.integers(0, max_nodes))
    owner = st.sampled_from([None, *([NO_RANK] if unowned else []), *range(num_ranks)])
    row = st.lists(owner, min_size=num_nodes, max_size=num_nodes)
    table = Table(num_ranks, num_nodes, draw(st.lists(row, max_size=max_snapshots)))
    order = draw(st.none() | st.permutations(range(num_ranks)))
    return table if order is None else _in_order(table, order)


def _in_order(table: Table, order: Sequence[int]) -> Table:
    """Reorder owners so that every sequence visits its ranks in the given order."""
    rows = [list(row) for row in table.rows]
    for v in range(table.num_nodes):
        cells = table.sequence(v)
        for (t, _), owner in zip(cells, sorted((owner for _, owner in cells), key=order.index), strict=True):
            rows[t][v] = owner
    return replace(table, rows=rows)


@st.composite
def windows(draw: st.DrawFn, /, **options: Any) -> tuple[Table, list[int]]:
    """A table, and the boundaries of its windows."""
    table = draw(tables(**options))
    inner = draw(st.sets(st.integers(1, max(len(table.rows) - 1, 1)), max_size=3))
    return table, sorted({0, len(table.rows)} | {cut for cut in inner if cut < len(table.rows)})


class Slow(nn.Module):
    """A time stage of two inputs, cell by cell. Its state is a nest of two tensors whose initial values are learned if
    ``begins``. Outputs have three columns.
    """

    has_row_state: ClassVar[bool] = True

    def __init__(self, inputs: int, *, begins: bool) -> None:
        super().__init__()
        self.of_input = nn.Parameter(torch.randn(inputs, 2, dtype=torch.float64) / 2)
        self.of_state = nn.Parameter(torch.randn(2, 2, dtype=torch.float64) / 2)
        self.h = nn.Parameter(torch.randn(2, dtype=torch.float64) / 2, begins)
        self.c = nn.Parameter(torch.randn(1, 1, dtype=torch.float64) / 2, begins)

    def encode(self, x: Sequence[Tensor], state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        slots = sequences.num_slots
        state = {"h": self.h.expand(slots, 2), "c": (self.c.expand(slots, 1, 1),)} if state is None else state
        h, c = list(state["h"].unbind()), list(state["c"][0].unbind())
        out = []
        for slot, row, extra in zip(sequences.slots.tolist(), *x, strict=True):
            h[slot] = torch.tanh(row @ self.of_input + h[slot] @ self.of_state)
            c[slot] = 0.9 * c[slot] + h[slot][:1, None] * extra[:1, None]
            out.append(torch.cat([h[slot], c[slot][0]]))
        last = {"h": _stacked(h, state["h"]), "c": (_stacked(c, state["c"][0]),)}
        return torch.stack(out) if out else x[0].new_zeros(0, 3), last


def _stacked(rows: list[Tensor], like: Tensor) -> Tensor:
    return torch.stack(rows) if rows else like


class Kernel(nn.Module):
    """A library time stage with two inputs, whose initial state is learned if ``begins``."""

    has_row_state: ClassVar[bool] = True
    supports_state_transport: ClassVar[bool] = True

    def __init__(self, *modules: nn.RNNBase, begins: bool) -> None:
        super().__init__()
        self.inner = nn.ModuleList(module.double() for module in modules)
        self.begin = nn.Parameter(torch.tensor(0.3, dtype=torch.float64), begins)

    def encode(self, x: Sequence[Tensor], state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        if state is None:
            empty = Sequences((0,), np.empty(0, np.int64), sequences.num_slots, sequences.device)
            zeros = self._encode([each[:0] for each in x], None, empty)[1]
            state = tree_map(lambda leaf: leaf + self.begin, zeros)
        return self._encode(x, state, sequences)

    def _encode(self, x: Sequence[Tensor], state: Any | None, sequences: Sequences) -> tuple[Tensor, Any]:
        """One module reads both inputs concatenated; several form a StackedLSTM."""
        if len(self.inner) > 1:
            return time.StackedLSTM(list(self.inner)).encode(x, state, sequences)
        return time.as_time(self.inner[0]).encode(torch.cat(list(x), 1), state, sequences)


KINDS: dict[str, Callable[..., nn.Module]] = {
    "slow": Slow,
    "gru": lambda inputs, **how: Kernel(nn.GRU(inputs + 1, 3), **how),
    "lstm of two layers": lambda inputs, **how: Kernel(nn.LSTM(inputs + 1, 3, num_layers=2), **how),
    "stack": lambda inputs, **how: Kernel(nn.LSTM(inputs, 1), nn.LSTM(1, 1), **how),
}
"""Time stages of two inputs with three output columns, by name."""


@dataclass(frozen=True)
class Stage:
    """Two time stages with inputs of all cells of a table, and the gradient of their outputs."""

    encoders: list[Any]
    x: Tensor  # [C, 2]
    extra: Tensor  # [C, 1]
    aim: Tensor  # [C, 3]

    @classmethod
    def over(cls, table: Table, kind: str = "slow", *, begins: bool = True) -> Stage:
        """``begins``: initial states are learned."""
        torch.manual_seed(0)
        number = len(table.cells())
        x, extra, aim = (torch.randn(number, width, dtype=torch.float64) for width in (2, 1, 3))
        encoders = [KINDS[kind](inputs, begins=begins) for inputs in (2, 3)]
        return cls(encoders, x.requires_grad_(), extra.requires_grad_(), aim)

    def leaves(self) -> list[Tensor]:
        return [self.x, self.extra, *(each for encoder in self.encoders for each in encoder.parameters())]

    def gradients(self) -> list[Tensor]:
        """Gradients of all leaves, zeros if there is none."""
        return [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad.clone() for leaf in self.leaves()]


def run_on_one_rank(
    stage: Stage, table: Table, cuts: list[int], *, with_grad: bool = True
) -> tuple[Tensor, list[Tensor]]:
    """Outputs of all cells and gradients, window by window. ``with_grad``: gradients cross windows."""
    stage = deepcopy(stage)
    states: list[Any] = [None] * len(stage.encoders)
    outs, first = [stage.x[:0, :1].expand(0, 3)], 0
    for start, stop in pairwise(cuts):
        window = table.window(start, stop)
        slots = [np.array([v for t, v in window.cells() if t == k], np.int64) for k in range(stop - start)]
        sequences = Sequences.of(slots, table.num_nodes)
        rows = slice(first, first + sequences.num_cells)
        out: Tensor = stage.x[rows]
        for k, encoder in enumerate(stage.encoders):
            out, states[k] = encoder.encode((out, stage.extra[rows]), states[k], sequences)
        states = states if with_grad else [detached(state) for state in states]
        outs.append(out)
        first = rows.stop
    whole = torch.cat(outs)
    (whole * stage.aim).sum().backward()
    return whole.detach(), stage.gradients()


@dataclass(frozen=True)
class Ran:
    """Results of a rank: outputs of its cells, gradients, rows and bytes sent by phase and kind, pipeline slots."""

    outs: list[tuple[list[int], Tensor]]
    gradients: list[Tensor]
    sent: dict[tuple[str, str], int]
    num_bytes: dict[tuple[str, str], int]
    slots: list[tuple[str, int, int]]
    states: list[Any]


def run_on_ranks(
    stage: Stage, table: Table, cuts: list[int], start_stage: Callable[[], StartStage], *, with_grad: bool = True
) -> list[Ran]:
    """Run both time stages over all windows on every rank, as a model would."""

    def work(comm: Comm) -> Ran:
        own, starts = deepcopy(stage), start_stage()
        states: list[Any] = [None] * len(own.encoders)
        loss, outs = own.x[:0].sum(), []
        with comm.ledger.phase("forward"):
            for start, stop in pairwise(cuts):
                window = table.window(start, stop)
                session = starts(window, comm)
                rows = [table.cells().index((start + t, v)) for t, v in window.cells(comm.rank)]
                out, tokens = own.x[rows], []
                for k, encoder in enumerate(own.encoders):
                    out, states[k], more = session.run(encoder, (out, own.extra[rows]), states[k])
                    tokens += more
                states = states if with_grad else [detached(state) for state in states]
                loss = loss + attach_tokens((out * own.aim[rows]).sum(), tokens)
                outs.append((rows, out.detach()))
        with comm.ledger.phase("backward"):
            loss.backward()
        slots = [(phase, number, slot) for phase, number, slot, _, _ in comm.ledger.pipeline_spans]
        return Ran(outs, own.gradients(), dict(comm.ledger.rows_sent), dict(comm.ledger.sent), slots, states)

    return as_threads(work, table.num_ranks)


def assert_same(results: list[Ran], expected: tuple[Tensor, list[Tensor]]) -> None:
    """Outputs of all ranks, and the sums of their gradients, are those of one rank."""
    whole = torch.full_like(expected[0], torch.nan)
    for each in results:
        for rows, out in each.outs:
            whole[rows] = out
    torch.testing.assert_close(whole, expected[0], rtol=1e-10, atol=1e-12)
    for gradients, wanted in zip(zip(*(each.gradients for each in results), strict=True), expected[1], strict=True):
        torch.testing.assert_close(torch.stack(gradients).sum(0), wanted, rtol=1e-10, atol=1e-12)


def detached(state: Any) -> Any:
    return tree_map(Tensor.detach, state)
