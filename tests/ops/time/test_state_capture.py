"""Recurrent stages that are asked for the states after some cells, in place of the last ones."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

from strobe.ops import native
from strobe.ops.time.gru import gru
from strobe.ops.time.lstm import lstm_stack, lstm_weights
from strobe.ops.time.sequences import Sequences, StateCapture

SLOTS, HIDDEN = 9, 5
PRESENT = [np.array([0, 1, 2, 3]), np.array([0, 2, 3, 4, 5, 6]), np.arange(SLOTS), np.array([1, 7])]
LEAVING = [np.array([0, 1]), np.array([2, 3, 5]), np.array([6]), np.array([7])]
"""Slots in ascending order over all snapshots, as in windows that slide."""


def sequences(last: int) -> Sequences:
    return Sequences.of(PRESENT[:last], SLOTS)


def cut() -> Sequences:
    whole = sequences(len(PRESENT))
    rows = [np.searchsorted(present, leaving) for present, leaving in zip(PRESENT, LEAVING, strict=True)]
    slices = []
    for start, at in zip(whole.cell_ptr, rows, strict=False):
        slices.append(slice(start + int(at[0]), start + int(at[-1]) + 1))
    slots = [present[at[0] : at[-1] + 1] for present, at in zip(PRESENT, rows, strict=True)]
    return replace(whole, capture=StateCapture(tuple(slices), tuple(slots)))


def stages(kind: str) -> tuple[list[Tensor], list[Tensor]]:
    torch.manual_seed(0)
    shapes = {"gru": [(15, 3), (15, HIDDEN), (15,)], "lstm": [(20, 3), (20, HIDDEN), (20,), (20, HIDDEN), (20, HIDDEN), (20,)]}  # fmt: skip  # noqa: E501
    weights = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes[kind]]
    states = [torch.randn(SLOTS, HIDDEN, dtype=torch.float64) for _ in range(1 if kind == "gru" else 4)]
    return weights, states


def run(kind: str, x: Tensor, over: Sequences) -> tuple[Tensor, list[Tensor]]:
    weights, states = stages(kind)
    if kind == "gru":
        out, last = gru(x, states[0], over, *weights)
        return out, [last]
    layers = [lstm_weights(a, b, c) for a, b, c in (weights[:3], weights[3:])]
    out, ended = lstm_stack([x], [(states[0], states[1]), (states[2], states[3])], over, layers)
    return out, [each for pair in ended for each in pair]


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("built", [True, False])
def test_states_are_those_after_the_cells_where_sequences_are_cut(kind: str, built: bool) -> None:
    over = cut()
    x = torch.randn(over.num_cells, 3, dtype=torch.float64)
    with patch.object(native, "library", side_effect=native.library if built else lambda: None):
        out, found = run(kind, x, over)
        plain, _ = run(kind, x, sequences(len(PRESENT)))
        torch.testing.assert_close(out, plain)
        assert over.capture is not None
        wanted = [state.clone() for state in stages(kind)[1]]
        for t, slots in enumerate(over.capture.slots):
            part = sequences(t + 1)
            _, after = run(kind, x[: part.num_cells], part)
            for state, each in zip(wanted, after, strict=True):
                state[slots] = each.detach()[slots]
    for state, each in zip(found, wanted, strict=True):
        assert not state.requires_grad
        torch.testing.assert_close(state, each)
