from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from strobe.ops.time import linear as linear_module
from strobe.ops.time import windowed
from strobe.ops.time.linear import time_linear
from strobe.ops.time.sequences import Sequences
from tests.ops.time.test_attention import CHANGING, EVERYONE, assert_equal_with_gradients, rows, sequences_of


def reference(
    x: Tensor, sequences: Sequences, weight: Tensor, bias: Tensor | None = None, *, span: int, past: int = 0
) -> Tensor:
    """``time_linear`` one cell after the other."""
    matrices = weight.chunk(span, 1)
    rows = {}
    outputs = [x[:0] @ matrices[0].t()]
    for t, (start, stop) in enumerate(pairwise(sequences.cell_ptr)):
        slots = sequences.slots[start:stop].tolist()
        rows.update({(slot, t): x[start + i] for i, slot in enumerate(slots)})
        for slot in slots if t >= past else []:
            before = [(k, rows[slot, t - k]) for k in range(span) if (slot, t - k) in rows]
            out = torch.stack([matrices[k] @ row for k, row in before]).sum(0)
            outputs.append((out if bias is None else out + bias)[None])
    return torch.cat(outputs)


@pytest.fixture(params=["whole", "cut into pieces"])
def cut(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param != "whole":
        monkeypatch.setattr(linear_module, "STRIDE", 2)
        monkeypatch.setattr(linear_module, "PIECE_PAIRS", {"cpu": 9})
        monkeypatch.setattr(windowed, "TILE_ROWS", {"cpu": 1})
    return str(request.param)


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("present", [EVERYONE, CHANGING, [[], [0], []]])
@pytest.mark.parametrize("span", [1, 3, 20])
@pytest.mark.parametrize("past", [0, 2])
@pytest.mark.parametrize("biased", [True, False])
def test_pieces_equal_the_loop_over_cells(present: list[list[int]], span: int, past: int, biased: bool) -> None:
    sequences = sequences_of(present, 5)
    inputs = [rows(sequences.num_cells, 3), rows(2, 3 * span, seed=1), *([rows(2, seed=2)] if biased else [])]
    x, weight, bias = [*inputs, None][:3]
    assert x is not None
    assert weight is not None
    options = {"span": span, "past": past}
    ours = time_linear(x, sequences, weight, bias, **options)
    assert_equal_with_gradients(ours, reference(x, sequences, weight, bias, **options), inputs)


def test_absent_cells_add_nothing_and_keep_their_place() -> None:
    sequences = sequences_of([[0], [], [0]])
    weight = torch.tensor([[1.0, 10.0, 100.0]])
    out = time_linear(torch.tensor([[1.0], [2.0]]), sequences, weight, span=3)
    assert out.flatten().tolist() == [1.0, 102.0]
