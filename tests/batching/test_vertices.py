from __future__ import annotations

from itertools import chain as joined

from strobe.batching import Vertices
from strobe.batching.subgraph_sampler import BatchSize, SubgraphSampler
from tests.support.graphs import AWKWARD
from tests.support.placement_cases import chain

GRAPH = chain([3] * 8)


def test_batches_have_all_snapshots_of_their_vertices() -> None:
    batches = Vertices(size=2).batches(GRAPH, range(8), hops=3, seed=1)
    assert [batch.times == batch.target_times == range(8) for batch in batches] == [True, True]
    assert [batch.hops for batch in batches] == [3, 3]
    targets = [batch.seed_nodes.tolist() for batch in batches if batch.seed_nodes is not None]
    assert sorted(joined(*targets)) == [0, 1, 2]
    assert all(nodes == sorted(nodes) for nodes in targets)


def test_order_of_vertices_depends_on_the_seed() -> None:
    graph = chain([50])
    batches = [Vertices(size=25).batches(graph, range(1), hops=1, seed=seed)[0].seed_nodes for seed in (1, 2)]
    assert batches[0] is not None
    assert batches[1] is not None
    assert batches[0].tolist() != batches[1].tolist()


def test_absent_vertices_are_in_no_batch() -> None:
    graph = AWKWARD["a node that is never present"].build()
    (batch,) = Vertices().batches(graph, range(1), hops=1)
    assert batch.seed_nodes is not None
    assert batch.seed_nodes.tolist() == [0, 2, 4]


def test_reservoir_samples_batches_of_all_snapshots() -> None:
    vertices = Vertices(size=25, reservoir=64)
    assert vertices.sampler == SubgraphSampler(snapshots=(1.0,), nodes=(25.0,), memory=64.0)
    assert vertices.sampler.sizes(8, 100) == [BatchSize(8, 25)]
    assert vertices.sampler.num_steps(8, 100) == 4
    assert vertices.sampler.capacities(8, 100) == [4]
    assert vertices.batches(GRAPH, range(8), hops=1) == []


def test_reservoir_of_size_1_has_one_vertex() -> None:
    sampler = Vertices(size=1, reservoir=64).sampler
    assert sampler is not None
    assert sampler.sizes(8, 100) == [BatchSize(8, 1)]
