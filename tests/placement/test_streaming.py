from __future__ import annotations

import pickle

import numpy as np
import pytest

from strobe.graph import DynamicGraph, from_edges
from strobe.placement import StreamingPartitioner, StreamingPlacement
from tests.placement.test_contract import PLACEMENTS
from tests.support.graphs import AWKWARD

ARRIVING = [placement for placement in PLACEMENTS if isinstance(placement, StreamingPlacement)]
every_arriving = pytest.mark.parametrize("placement", ARRIVING, ids=str)


def drifting(num_nodes: int = 40, num_snapshots: int = 6) -> DynamicGraph:
    """Some nodes come, go and return; a third of the edges changes every time."""
    random = np.random.default_rng(0)
    nodes = [np.flatnonzero(random.random(num_nodes) < 0.3 + 0.1 * t) for t in range(num_snapshots)]
    shots = [random.choice(some, (2, 60)) for some in nodes]
    return from_edges(shots, num_nodes=num_nodes, nodes=nodes, directed=False, x=np.ones((num_nodes, 8)))


GRAPHS = {name: plain.build() for name, plain in AWKWARD.items()} | {"drifting": drifting()}
every_graph = pytest.mark.parametrize("graph", GRAPHS.values(), ids=list(GRAPHS))


def fed(arriving: StreamingPartitioner, graph: DynamicGraph) -> list[list[int]]:
    return [arriving.place_next(snapshot).tolist() for snapshot in graph]


@every_arriving
@every_graph
def test_owners_are_the_same_at_once_and_one_after_the_other(
    placement: StreamingPlacement, graph: DynamicGraph
) -> None:
    placed = placement.place(graph, [range(len(graph))], 3, seed=4)
    owners = [placed.owners(graph, t).tolist() for t in range(len(graph))]
    assert fed(placement.start(3, seed=4), graph) == owners


@every_arriving
def test_what_comes_later_changes_nothing(placement: StreamingPlacement) -> None:
    graph = GRAPHS["drifting"]
    assert fed(placement.start(3), graph[:3]) == fed(placement.start(3), graph)[:3]


@every_arriving
@every_graph
def test_one_that_remembers_goes_on_as_if_nothing_had_happened(
    placement: StreamingPlacement, graph: DynamicGraph
) -> None:
    half = len(graph) // 2
    first = placement.start(3, seed=4)
    before = fed(first, graph[:half])
    found = pickle.dumps(first.state_dict())
    fed(first, graph[half:])  # what was remembered does not change with it
    second = placement.start(3, seed=4)
    second.load_state_dict(pickle.loads(found))
    assert before + fed(second, graph[half:]) == fed(placement.start(3, seed=4), graph)


@every_arriving
def test_owners_are_small_numbers_of_their_own(placement: StreamingPlacement) -> None:
    """Who writes into them does not change where nodes are."""
    graph = GRAPHS["drifting"]
    arriving = placement.start(3)
    expected = fed(placement.start(3), graph)
    for snapshot, owners in zip(graph, expected, strict=True):
        found = arriving.place_next(snapshot)
        assert found.dtype == np.int16
        assert found.tolist() == owners
        found[:] = 0


@every_arriving
def test_ids_may_be_larger_than_any_before(placement: StreamingPlacement) -> None:
    few, many = (from_edges([np.array([[0, 1], [1, 2]])], num_nodes=number) for number in (3, 3))
    more = from_edges([np.array([[0, 7], [1, 8]])], num_nodes=9, nodes=[[0, 1, 7, 8]])
    arriving = placement.start(2)
    assert len(arriving.place_next(few[0])) == len(arriving.place_next(many[0])) == 3
    assert set(arriving.place_next(more[0]).tolist()) <= {0, 1}
    assert len(arriving.place_next(few[0])) == 3
