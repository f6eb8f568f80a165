"""Long short-term memory over packed sequences, as torch defines it."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from strobe.ops import native
from strobe.ops.recurrent import Cell, Grads, State, run
from strobe.ops.sequences import Sequences

TILE_ROWS = 1024


def lstm(
    x: Tensor,
    state: tuple[Tensor, Tensor],
    sequences: Sequences,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
    *,
    keep_gates: bool = True,
    tile_rows: int = TILE_ROWS,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Hidden states of all cells [C, H] and the last (h, c) of every slot, [S, H] each.

    Args:
        x: inputs of the cells [C, F]; state: first (h, c) of every slot.
        w_ih, w_hh: [4H, F] and [4H, H], gates in the order input, forget, candidate, output; biases [4H].
        keep_gates: store 4H numbers a cell while training, or compute them again in backward.
    """
    hidden = w_hh.shape[1]
    zeros = x.new_zeros(4 * hidden)
    weights = (w_ih, w_hh, zeros if b_ih is None else b_ih, zeros if b_hh is None else b_hh)
    out, (h, c) = run(partial(Lstm, keep_gates), x, state, sequences, weights, tile_rows)
    return out, (h, c)


class Lstm(Cell):
    """c' = f c + i u, h' = o tanh(c')."""

    num_states = 2

    def __init__(self, keep_gates: bool, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> None:
        self.w_ih, self.w_hh, self.b_ih, self.b_hh = self.weights = (w_ih, w_hh, b_ih, b_hh)
        self.hidden = w_hh.shape[1]
        self._keep = keep_gates

    def step(self, x: Tensor, state: State) -> State:
        h, c = state
        g = torch.addmm(self.b_ih + self.b_hh, x, self.w_ih.t()) + h @ self.w_hh.t()
        i, f, u, o = g.chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(u)
        return torch.sigmoid(o) * torch.tanh(c), c

    def kept_columns(self) -> int:
        return 4 * self.hidden if self._keep else 0

    def scratch(self, rows: int) -> tuple[Tensor, ...]:
        new = self.w_ih.new_empty
        wide = () if self._keep else (new(rows, 4 * self.hidden), new(rows, self.hidden), new(rows, self.hidden))
        return (new(rows, 4 * self.hidden), *wide)

    def _project(self, x: Tensor, h: Tensor, g: Tensor) -> None:
        torch.addmm(self.b_ih + self.b_hh, x, self.w_ih.t(), out=g)
        g.addmm_(h, self.w_hh.t())

    def forward(self, x: Tensor, state: State, new: State, kept: Tensor | None, scratch: tuple[Tensor, ...]) -> None:
        g = scratch[0][: len(x)] if kept is None else kept
        self._project(x, state[0], g)
        native.call("lstm", len(x), self.hidden, g, state[1], new[1], new[0])

    def backward(self, grads: Grads, x: Tensor, old: State, new: State, kept: Tensor | None) -> None:
        (h, c), (dh, dc) = old, grads.state
        d_w_ih, d_w_hh, d_b_ih, d_b_hh = grads.weights
        dg = grads.scratch[0][: len(x)]
        g = kept
        if g is None:
            g, c_new, h_new = (buffer[: len(x)] for buffer in grads.scratch[1:])
            self._project(x, h, g)
            native.call("lstm", len(x), self.hidden, g, c, c_new, h_new)
        native.call("lstm_backward", len(x), self.hidden, g, c, new[1], dh, dc, dg, d_b_ih)
        d_w_ih.addmm_(dg.t(), x)
        d_w_hh.addmm_(dg.t(), h)
        torch.mm(dg, self.w_hh, out=dh)
        if grads.x is not None:
            torch.mm(dg, self.w_ih, out=grads.x)
        d_b_hh.copy_(d_b_ih)
