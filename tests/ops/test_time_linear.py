from __future__ import annotations

import pytest
import torch

from strobe.ops import lookback, time_linear
from strobe.ops.time_linear import time_linear as linear
from strobe.ops.time_linear import time_linear_reference as reference
from tests.ops.test_time_attention import CHANGING, EVERYONE, assert_equal_with_gradients, rows, sequences_of


@pytest.fixture(params=["whole", "cut into pieces"])
def cut(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param != "whole":
        monkeypatch.setattr(time_linear, "STRIDE", 2)
        monkeypatch.setattr(time_linear, "PIECE_PAIRS", {"cpu": 9})
        monkeypatch.setattr(lookback, "TILE_ROWS", {"cpu": 1})
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
    ours = linear(x, sequences, weight, bias, **options)
    assert_equal_with_gradients(ours, reference(x, sequences, weight, bias, **options), inputs)


def test_absent_cells_add_nothing_and_keep_their_place() -> None:
    sequences = sequences_of([[0], [], [0]])
    weight = torch.tensor([[1.0, 10.0, 100.0]])
    out = linear(torch.tensor([[1.0], [2.0]]), sequences, weight, span=3)
    assert out.flatten().tolist() == [1.0, 102.0]
