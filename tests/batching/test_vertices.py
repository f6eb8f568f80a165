from __future__ import annotations

from itertools import chain as joined

import pytest

from strobe.batching import Vertices
from strobe.batching.drawing import Drawing, Size
from strobe.errors import OptionError
from tests.graphs import AWKWARD
from tests.placement.cases import chain

GRAPH = chain([3] * 8)


def test_vertices_are_asked_about_in_all_snapshots_with_what_they_read() -> None:
    batches = Vertices(size=2).batches(GRAPH, range(8), hops=3, seed=1)
    assert [batch.times == batch.asked == range(8) for batch in batches] == [True, True]
    assert [batch.hops for batch in batches] == [3, 3]
    targets = [batch.targets.tolist() for batch in batches if batch.targets is not None]
    assert sorted(joined(*targets)) == [0, 1, 2]
    assert all(nodes == sorted(nodes) for nodes in targets)


def test_vertices_are_drawn_by_the_seed() -> None:
    graph = chain([50])
    drawn = [Vertices(size=25).batches(graph, range(1), hops=1, seed=seed)[0].targets for seed in (1, 2)]
    assert drawn[0] is not None
    assert drawn[1] is not None
    assert drawn[0].tolist() != drawn[1].tolist()


def test_vertices_that_are_never_there_are_not_asked() -> None:
    graph = AWKWARD["a node that is never present"].build()
    (batch,) = Vertices().batches(graph, range(1), hops=1)
    assert batch.targets is not None
    assert batch.targets.tolist() == [0, 2, 4]


def test_a_batch_of_no_vertex_is_refused() -> None:
    with pytest.raises(OptionError, match="a batch has at least 1 vertex, not 0"):
        Vertices(size=0)


def test_a_reservoir_of_negative_memory_is_refused() -> None:
    with pytest.raises(OptionError, match="memory for batches must be 0 MiB or more, not -1"):
        Vertices(reservoir=-1)


def test_with_a_reservoir_ranks_draw_batches_of_all_snapshots() -> None:
    vertices = Vertices(size=25, reservoir=64)
    assert vertices.drawing == Drawing(snapshots=(1.0,), nodes=(25.0,), memory=64.0)
    assert vertices.drawing.sizes(8, 100) == [Size(8, 25)]
    assert vertices.drawing.num_steps(8, 100) == 4, "as many as without"
    assert vertices.drawing.capacities(8, 100) == [4]
    assert vertices.batches(GRAPH, range(8), hops=1) == []


def test_a_reservoir_of_batches_of_one_vertex_is_not_one_of_all_of_them() -> None:
    drawing = Vertices(size=1, reservoir=64).drawing
    assert drawing is not None
    assert drawing.sizes(8, 100) == [Size(8, 1)]


def test_without_a_reservoir_nothing_is_drawn_and_nothing_needed() -> None:
    assert Vertices().drawing is None
    assert not Vertices().needs
    assert not Vertices().gives
