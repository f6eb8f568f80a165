from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from strobe.graph import DynamicGraph, from_edges
from strobe.models import make_model
from strobe.models.time import Recurrent
from strobe.planner.time.chunks import (
    REFERENCE_COLUMNS,
    ChunkBenchmark,
    ChunkRanges,
    RandomChunk,
    cap_ranges,
    measure,
    sample_chunks,
)
from strobe.view import View

CHUNK = RandomChunk(cells=900, arcs=4_000, length=5, features=3, hidden=32, presence=0.8, spread=1.5, seed=7)


@pytest.mark.parametrize("directed", [True, False])
def test_a_chunk_is_the_graph_that_its_edges_make_with_about_the_cells_and_arcs_it_was_drawn_with(
    directed: bool,
) -> None:
    graph = CHUNK.graph(directed=directed)
    assert graph == rebuilt(graph)
    assert graph == CHUNK.graph(directed=directed)
    assert graph.num_cells == pytest.approx(CHUNK.cells, rel=0.2)
    assert graph.num_arcs == pytest.approx(CHUNK.arcs, rel=0.02)
    assert graph.num_cells / graph.num_nodes == pytest.approx(CHUNK.length, rel=0.2)
    assert graph.features is not None
    assert graph.features.shape == (3,)


def rebuilt(graph: DynamicGraph) -> DynamicGraph:
    """The same through the builder, which checks and sorts."""
    return from_edges(
        [np.stack(snapshot.edges()[:2]) for snapshot in graph],
        num_nodes=graph.num_nodes,
        nodes=[snapshot.nodes for snapshot in graph],
        x=[np.asarray(snapshot.x) for snapshot in graph],
        directed=graph.directed,
    )


def test_sequences_have_gaps_and_every_node_is_present_once() -> None:
    graph = CHUNK.graph()
    present = np.zeros((len(graph), graph.num_nodes), bool)
    for t, snapshot in enumerate(graph):
        present[t, snapshot.nodes] = True
    assert present.any(0).all()
    assert (np.abs(np.diff(present.astype(int), axis=0)).sum(0) > 2).any()


@pytest.mark.parametrize("chunk", [replace(CHUNK, cells=1, arcs=0, length=1), replace(CHUNK, cells=3, length=3)])
def test_the_smallest_chunks_can_be_made(chunk: RandomChunk) -> None:
    assert chunk.graph().num_cells >= 1


def test_chunks_lie_between_the_bounds_and_wide_ones_are_smaller() -> None:
    ranges = ChunkRanges(cells=(300, 50_000), arcs=200_000)
    chunks = list(islice(sample_chunks(ranges, multiple_of=16), 200))
    assert chunks == list(islice(sample_chunks(ranges, multiple_of=16), 200))
    assert chunks != list(islice(sample_chunks(ranges, seed=1, multiple_of=16), 200))
    for chunk in chunks:
        fewer = min(1, REFERENCE_COLUMNS / chunk.hidden)
        assert 300 <= chunk.cells <= 50_000 * fewer + 1
        assert chunk.arcs <= max(200_000 * fewer, 300 * 30) + 1
        assert chunk.hidden % 16 == 0
        assert 1 <= chunk.features <= 64
    assert len({chunk.hidden for chunk in chunks}) == 8


def test_ranges_grow_to_have_a_width_inside() -> None:
    wider = ChunkRanges().extend_to(1_000, 256)
    assert not ChunkRanges().covers(1_000, 256)
    assert wider.covers(1_000, 256)
    assert wider.covers(*map(round, (ChunkRanges().features[0], ChunkRanges().hidden[0])))
    assert not ChunkRanges().restrict_to(5, 32).covers(6, 32)


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
    """Two time stages that read the same convolution: its backward pass cannot be cut from theirs."""

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
