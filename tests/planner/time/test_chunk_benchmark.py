from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from strobe.models import make_model
from strobe.models.time import Recurrent
from strobe.planner.time.chunk_benchmark import ChunkBenchmark, cap_ranges, measure
from strobe.planner.time.random_chunks import ChunkRanges, sample_chunks
from strobe.view import View

SMALL = ChunkRanges(cells=(30, 120), arcs=960, features=(1, 4), hidden=(16, 32))


def bench(name: str, **options: Any) -> ChunkBenchmark:
    return ChunkBenchmark(make=lambda f, h: make_model(name, f, hidden=h, **options), device=torch.device("cpu"))


@pytest.mark.parametrize("name", ["tgcn", "dysat"])
def test_both_stages_of_every_chunk_are_measured(name: str) -> None:
    heard: list[tuple[str, int, int | None]] = []
    chunks = list(islice(sample_chunks(SMALL, multiple_of=16), 4))
    times = measure(bench(name, layers=2), chunks, on_stage=lambda *told: heard.append(told))
    assert len(times) == len(heard) == 4
    assert (times.structure > 0).all()
    assert (times.time > 0).all()
    assert times.hidden.tolist() == [chunk.hidden for chunk in chunks]
    assert times.cells.tolist() == [chunk.graph().num_cells for chunk in chunks]
    assert (times.sequences <= times.cells).all()


def test_an_interwoven_model_has_no_time_stage() -> None:
    times = measure(bench("dcrnn"), islice(sample_chunks(SMALL, multiple_of=16), 2))
    assert (times.structure > 0).all()
    assert not times.time.any()


class Shared(nn.Module):
    """Two time stages that read the same convolution: there is no cut between its way back and theirs."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.width = hidden
        self.map = nn.Linear(inputs, hidden)
        self.first, self.second = Recurrent(nn.GRU(hidden, hidden)), Recurrent(nn.GRU(hidden, hidden))

    def forward(self, view: View) -> Tensor:
        x = torch.tanh(self.map(view.x))
        return view.over_time(self.second, view.over_time(self.first, x) + torch.exp(x))


def test_a_model_that_cannot_be_cut_runs_in_one() -> None:
    own = ChunkBenchmark(make=Shared, device=torch.device("cpu"))
    times = measure(own, islice(sample_chunks(SMALL, multiple_of=16), 2))
    assert (times.structure > 0).all()
    assert not times.time.any()


def test_an_error_of_the_model_is_not_taken_for_a_cut() -> None:
    def broken(inputs: int, hidden: int) -> nn.Module:
        return make_model("dysat", inputs + 1, hidden=hidden)

    with pytest.raises(RuntimeError, match="shapes"):
        measure(
            ChunkBenchmark(make=broken, device=torch.device("cpu")), islice(sample_chunks(SMALL, multiple_of=16), 1)
        )


def test_measuring_ends_with_its_time_but_not_before_the_fewest() -> None:
    times = measure(bench("tgcn"), islice(sample_chunks(SMALL, multiple_of=16), 10), seconds=0.0, min_chunks=3)
    assert len(times) == 3


def test_random_numbers_go_on_as_if_nothing_had_run() -> None:
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    measure(bench("tgcn"), islice(sample_chunks(SMALL, multiple_of=16), 1))
    assert torch.equal(torch.rand(3), wanted)


def test_chunks_are_no_larger_than_the_machine_can_afford() -> None:
    wanted = replace(ChunkRanges(), cells=(300, 10**9), arcs=10**10)
    ranges = cap_ranges(bench("tgcn"), wanted, next(sample_chunks(wanted, multiple_of=16)))
    assert 3_000 <= ranges.cells[1] < 10**9
    assert ranges.arcs < 10**10
    assert cap_ranges(bench("tgcn"), SMALL, next(sample_chunks(SMALL, multiple_of=16))) == SMALL
