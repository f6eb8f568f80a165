"""Gated recurrent units over packed sequences, in the two forms that are in use.

They differ in where the reset gate acts: on the state (Cho et al. 2014; T-GCN), or on the projected state (torch
and cuDNN). Update as in torch: h' = z h + (1 - z) candidate.
"""

from __future__ import annotations

import torch
from torch import Tensor

from strobe.ops import native
from strobe.ops.recurrent import Cell, Grads, State, run
from strobe.ops.sequences import Sequences

TILE_ROWS = 2048


def gru(
    x: Tensor,
    h: Tensor,
    sequences: Sequences,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
    *,
    reset_state: bool = False,
    tile_rows: int = TILE_ROWS,
) -> tuple[Tensor, Tensor]:
    """Hidden states of all cells [C, H] and the last state of every slot [S, H].

    Args:
        x: inputs of the cells [C, F]; h: first state of every slot [S, H].
        w_ih, w_hh: [3H, F] and [3H, H], gates in the order reset, update, candidate; biases [3H].
        reset_state: the reset gate acts on the state, not on its projection.

    Keeps nothing but the states: backward computes the gates again, which costs less than storing 3H numbers a cell.
    """
    hidden = w_hh.shape[1]
    zeros = x.new_zeros(3 * hidden)
    weights = (w_ih, w_hh, zeros if b_ih is None else b_ih, zeros if b_hh is None else b_hh)
    out, (last,) = run(ResetState if reset_state else ResetProjection, x, (h,), sequences, weights, tile_rows)
    return out, last


class _Gru(Cell):
    num_states = 1

    def __init__(self, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> None:
        self.w_ih, self.w_hh, self.b_ih, self.b_hh = self.weights = (w_ih, w_hh, b_ih, b_hh)
        self.hidden = w_hh.shape[1]

    def kept_columns(self) -> int:
        return 0


class ResetProjection(_Gru):
    """candidate = tanh(W x + b + r (U h + c))."""

    def step(self, x: Tensor, state: State) -> State:
        (h,) = state
        xr, xz, xc = torch.addmm(self.b_ih, x, self.w_ih.t()).chunk(3, 1)
        hr, hz, hc = torch.addmm(self.b_hh, h, self.w_hh.t()).chunk(3, 1)
        z = torch.sigmoid(xz + hz)
        candidate = torch.tanh(xc + torch.sigmoid(xr + hr) * hc)
        return (candidate + z * (h - candidate),)

    def scratch(self, rows: int) -> tuple[Tensor, ...]:
        return self.w_ih.new_empty(rows, 3 * self.hidden), self.w_ih.new_empty(rows, 3 * self.hidden)

    def _project(self, x: Tensor, h: Tensor, scratch: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        gx, gh = (buffer[: len(x)] for buffer in scratch)
        torch.addmm(self.b_ih, x, self.w_ih.t(), out=gx)
        torch.addmm(self.b_hh, h, self.w_hh.t(), out=gh)
        return gx, gh

    def forward(self, x: Tensor, state: State, new: State, kept: Tensor | None, scratch: tuple[Tensor, ...]) -> None:
        gx, gh = self._project(x, state[0], scratch)
        native.call("gru", len(x), self.hidden, gx, gh, state[0], new[0])

    def backward(self, grads: Grads, x: Tensor, old: State, new: State, kept: Tensor | None) -> None:
        (h,), (dh,) = old, grads.state
        gx, gh = self._project(x, h, grads.scratch)
        d_w_ih, d_w_hh, d_b_ih, d_b_hh = grads.weights
        native.call("gru_backward", len(x), self.hidden, gx, gh, h, dh, d_b_ih, d_b_hh)
        d_w_ih.addmm_(gx.t(), x)
        d_w_hh.addmm_(gh.t(), h)
        dh.addmm_(gh, self.w_hh)
        if grads.x is not None:
            torch.mm(gx, self.w_ih, out=grads.x)


class ResetState(_Gru):
    """candidate = tanh(W x + b + U (r h) + c)."""

    def step(self, x: Tensor, state: State) -> State:
        (h,) = state
        gates, candidate = self.w_hh.split([2 * self.hidden, self.hidden])
        g = torch.addmm(self.b_ih + self.b_hh, x, self.w_ih.t())
        r, z = torch.sigmoid(g[:, : 2 * self.hidden] + h @ gates.t()).chunk(2, 1)
        c = torch.tanh(g[:, 2 * self.hidden :] + (r * h) @ candidate.t())
        return (c + z * (h - c),)

    def scratch(self, rows: int) -> tuple[Tensor, ...]:
        new = self.w_ih.new_empty
        return new(rows, 3 * self.hidden), new(rows, self.hidden), new(rows, self.hidden)

    def _activate(self, x: Tensor, h: Tensor, scratch: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Gates [n, 3H] with the candidate not yet squashed, and r h."""
        g, rh = scratch[0][: len(x)], scratch[1][: len(x)]
        split = 2 * self.hidden
        torch.addmm(self.b_ih + self.b_hh, x, self.w_ih.t(), out=g)
        g[:, :split].addmm_(h, self.w_hh[:split].t())
        native.call("gru_reset", len(x), self.hidden, g, h, rh)
        g[:, split:].addmm_(rh, self.w_hh[split:].t())
        return g, rh

    def forward(self, x: Tensor, state: State, new: State, kept: Tensor | None, scratch: tuple[Tensor, ...]) -> None:
        g, _ = self._activate(x, state[0], scratch)
        native.call("gru_update", len(x), self.hidden, g, state[0], new[0])

    def backward(self, grads: Grads, x: Tensor, old: State, new: State, kept: Tensor | None) -> None:
        (h,), (dh,) = old, grads.state
        split = 2 * self.hidden
        g, rh = self._activate(x, h, grads.scratch)
        drh = grads.scratch[2][: len(x)]
        d_w_ih, d_w_hh, d_b_ih, d_b_hh = grads.weights
        native.call("gru_update_backward", len(x), self.hidden, g, h, dh)
        torch.mm(g[:, split:], self.w_hh[split:], out=drh)
        # The old reset gate is still in g's first columns: drh needs only the candidate's.
        native.call("gru_reset_backward", len(x), self.hidden, g, h, drh, dh, d_b_ih)
        d_w_ih.addmm_(g.t(), x)
        d_w_hh[:split].addmm_(g[:, :split].t(), h)
        d_w_hh[split:].addmm_(g[:, split:].t(), rh)
        dh.addmm_(g[:, :split], self.w_hh[:split])
        if grads.x is not None:
            torch.mm(g, self.w_ih, out=grads.x)
        d_b_hh.copy_(d_b_ih)
