from __future__ import annotations

from itertools import chain as joined

import pytest

from strobe.batching import Vertices
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
