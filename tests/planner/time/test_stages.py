from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from strobe.models import MODELS, make_model
from strobe.models.time import Recurrent
from strobe.planner.time.chunks import RandomChunk
from strobe.planner.time.stages import time_pass, time_unsplit_pass
from strobe.view import View, WindowData

CELLS = WindowData(
    RandomChunk(cells=60, arcs=150, length=4, features=3, hidden=8, presence=0.8, spread=1.5, seed=1).graph()
)
INTERWOVEN = ("dcrnn", "evolvegcn-o", "evolvegcn-h", "gconv-gru", "gc-lstm", "gcn")


class Layered(nn.Module):
    """Structure, time, structure, time, structure."""

    width = 4

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.ModuleList([nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 4)])
        self.stages = nn.ModuleList([Recurrent(nn.GRU(4, 4)), Recurrent(nn.LSTM(4, 4))])

    def forward(self, view: View) -> Tensor:
        x = view.over_time(self.stages[0], view.aggregate(self.maps[0](view.x)))  # type: ignore[arg-type]
        x = view.over_time(self.stages[1], view.aggregate(self.maps[1](x)))  # type: ignore[arg-type]
        out: Tensor = self.maps[2](x)
        return out


def made(name: str) -> Any:
    torch.manual_seed(0)
    return Layered() if name == "layered" else make_model(name, 3, hidden=8)


@pytest.mark.parametrize("name", [*MODELS, "layered"])
def test_a_pass_in_stages_gives_the_gradients_of_the_whole_pass(name: str) -> None:
    gradient = torch.randn(CELLS.num_cells, made(name).width, generator=torch.Generator().manual_seed(3))
    gradients = []
    for run in (time_pass, time_unsplit_pass):
        model = made(name)
        run(model, CELLS, gradient)
        gradients.append([parameter.grad for parameter in model.parameters()])
    for cut, whole in zip(*gradients, strict=True):
        assert (cut is None) == (whole is None)
        assert cut is None or torch.equal(cut, whole)


@pytest.mark.parametrize("name", [*MODELS, "layered"])
def test_models_without_a_time_stage_of_their_own_are_all_structure(name: str) -> None:
    model = made(name)
    seconds = time_pass(model, CELLS, torch.ones(CELLS.num_cells, model.width))
    assert seconds.structure > 0
    assert (seconds.time > 0) == (name not in INTERWOVEN)


def test_what_a_pass_left_behind_does_not_add_up() -> None:
    model, gradient = made("tgcn"), torch.ones(CELLS.num_cells, 8)
    time_pass(model, CELLS, gradient)
    first = [parameter.grad.clone() for parameter in model.parameters()]
    time_pass(model, CELLS, gradient)
    assert all(torch.equal(a, b.grad) for a, b in zip(first, model.parameters(), strict=True))
