from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from strobe.graph import DynamicGraph
from strobe.planner.time.random_chunks import REFERENCE_COLUMNS, ChunkRanges, RandomChunk, sample_chunks

CHUNK = RandomChunk(cells=900, arcs=4_000, length=5, features=3, hidden=32, presence=0.8, spread=1.5, seed=7)


@pytest.mark.parametrize("directed", [True, False])
def test_a_chunk_has_about_the_cells_and_arcs_it_was_drawn_with(directed: bool) -> None:
    graph = CHUNK.graph(directed=directed)
    assert graph.num_cells == pytest.approx(CHUNK.cells, rel=0.2)
    assert graph.num_arcs == pytest.approx(CHUNK.arcs, rel=0.02)
    assert graph.num_cells / graph.num_nodes == pytest.approx(CHUNK.length, rel=0.2)
    assert graph.features is not None
    assert graph.features.shape == (3,)


@pytest.mark.parametrize("directed", [True, False])
def test_a_chunk_is_the_graph_that_its_edges_make(directed: bool) -> None:
    graph = CHUNK.graph(directed=directed)
    assert graph == rebuilt(graph)
    assert graph == CHUNK.graph(directed=directed)


def rebuilt(graph: DynamicGraph) -> DynamicGraph:
    """The same through the builder, which checks and sorts."""
    from strobe.graph import from_edges

    return from_edges(
        [np.stack(snapshot.edges()[:2]) for snapshot in graph],
        num_nodes=graph.num_nodes,
        nodes=[snapshot.nodes for snapshot in graph],
        x=[np.asarray(snapshot.x) for snapshot in graph],
        directed=graph.directed,
    )


def test_sequences_have_gaps_and_nobody_is_never_there() -> None:
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
