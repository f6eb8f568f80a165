"""Recurrences whose convolutions read the state: they step through time, one snapshot after the other."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from strobe.view import View

Step = Callable[[View, Tensor, Tensor], Tensor]
"""New states of a snapshot's cells, from its view, the rows of its cells and their old states."""


def step_through_time(view: View, step: Step, x: Tensor, columns: int) -> Tensor:
    """Run a recurrence from the states that the previous window saved; new nodes start from 0.

    Args:
        view: the cells of a window.
        step: the recurrence, called with the view of one snapshot, which convolves.
        x: rows of all cells, [C, F].
        columns: of the state.

    Returns:
        The state after every cell, [C, columns].
    """
    state = view.load_state()
    if state is None:
        state = x.new_zeros(view.num_slots, columns)
    states: list[Tensor] = []
    outputs = []
    for snapshot, rows in zip(view.steps(), view.split(x), strict=True):
        new = step(snapshot, rows, snapshot.gather_state(state))
        state = snapshot.scatter_state(state, new)
        states = [*states, state] if view.is_sliding else [state]
        outputs.append(new)
    view.save_states(states, per_node=True)
    return torch.cat(outputs) if outputs else x.new_zeros(0, columns)


def graph_gru_step(x: Tensor, h: Tensor, weight: Tensor, convolve: Callable[[Tensor], Tensor]) -> Tensor:
    """r, z = σ(x + W conv(h)); candidate = tanh(x + W conv(r h)); h' = z h + (1 - z) candidate.

    Args:
        x: input part of the gates, [c, 3H], in the order reset, update, candidate.
        h: old states, [c, H].
        weight: of the convolved state, [3H, F].
        convolve: the part of the convolution that has no parameters, [c, F] from [c, H].

    Returns:
        New states, [c, H].
    """
    split = 2 * h.shape[1]
    r, z = torch.sigmoid(torch.addmm(x[:, :split], convolve(h), weight[:split].t())).chunk(2, 1)
    candidate = torch.tanh(torch.addmm(x[:, split:], convolve(r * h), weight[split:].t()))
    return candidate + z * (h - candidate)
