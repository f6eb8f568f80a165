from __future__ import annotations

from dataclasses import replace
from itertools import chain as joined
from typing import Any

import pytest

from strobe.batching import Batching, Hybrid, Vertices
from strobe.batching.subgraph_sampler import BatchSize, SubgraphSampler
from strobe.errors import OptionError
from strobe.exchange import Cached, Exchange, Halo, NoExchange, NoTimeExchange
from strobe.placement import LoadAware, Replicated
from strobe.plan import Plan
from strobe.registry import make_strategy
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


def test_batch_is_a_share_of_nodes_in_a_share_of_snapshots() -> None:
    assert Hybrid().sampler == SubgraphSampler(snapshots=(0.2,), nodes=(0.05,), num_strata=8)
    assert Hybrid().sampler.sizes(20, 1000) == [BatchSize(4, 50)]
    assert Hybrid(snapshots=3, vertices=7).sampler.sizes(20, 1000) == [BatchSize(3, 7)]


def test_options_reach_the_sampler_and_lists_of_shares_are_copied() -> None:
    shares = [0.5, 1]
    hybrid = Hybrid(
        snapshots=(0.1, 4), vertices=shares, size_policy="random", num_strata=3, steps_per_epoch=11, memory=5
    )
    shares.append(5)
    assert hybrid.vertices == (0.5, 1)
    assert hybrid.sampler == SubgraphSampler(
        snapshots=(0.1, 4), nodes=(0.5, 1), size_policy="random", num_strata=3, steps_per_epoch=11, memory=5.0
    )
    assert Hybrid(snapshots=[0.3], vertices=(0.1,)) == Hybrid(snapshots=0.3, vertices=0.1)


@pytest.mark.parametrize("name", ["snapshots", "vertices"])
@pytest.mark.parametrize("share", [0, -0.5, 1.5, float("nan"), float("inf"), True, None, "0.1"])
def test_invalid_shares_are_refused(name: str, share: Any) -> None:
    for value in (share, [0.5, share]):
        wrong: dict[str, Any] = {name: value}
        with pytest.raises(OptionError) as error:
            Hybrid(**wrong, size_policy="random")
        assert str(error.value).startswith(f"{name} of ")


def test_several_sizes_need_a_size_policy() -> None:
    with pytest.raises(OptionError, match=r"6 batch sizes .* size_policy=random"):
        Hybrid(snapshots=(0.1, 0.2), vertices=(0.1, 0.2, 0.3))
    assert Hybrid(snapshots=(0.1, 0.2), size_policy="random").sampler.size_policy == "random"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"vertices": ()}, "vertices"),
        ({"size_policy": "learnt"}, "fixed or random or learned"),
        ({"num_strata": 0}, "num_strata"),
        ({"steps_per_epoch": 0}, "steps_per_epoch"),
        ({"min_nodes": 0}, "min_nodes"),
        ({"memory": -1}, "0 MiB or more"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        Hybrid(**options)


@pytest.mark.parametrize(
    "batching", [Hybrid(), make_strategy("batching", {"name": "vertices", "reservoir": 64.0})], ids=str
)
def test_sampled_batches_need_local_inputs_on_several_ranks(batching: Batching) -> None:
    cached = Exchange(structure=Cached(), time=NoTimeExchange())
    plan = Plan(placement=LoadAware(), batching=batching, exchange=cached)
    assert not plan.conflicts(4)
    assert not plan.exact
    (conflict,) = replace(plan, exchange=Exchange(structure=Halo(), time=NoTimeExchange())).conflicts(4)
    assert conflict.need.fact == "local inputs"
    assert "exchange structure cached" in str(conflict)
    assert not replace(
        plan, placement=Replicated(), exchange=Exchange(structure=NoExchange(), time=NoTimeExchange())
    ).conflicts(4)
    assert not Plan(batching=batching).conflicts(1)


def test_windows_are_refused() -> None:
    with pytest.raises(OptionError, match=r"hybrid .* is not cut into windows of 4: leave --window out"):
        Hybrid().with_window(4)


def test_batch_has_at_least_min_nodes() -> None:
    sampler = Hybrid(snapshots=0.5, vertices=(0.01, 0.5), size_policy="random", min_nodes=64).sampler
    assert sampler.sizes(10, 1000) == [BatchSize(5, 64), BatchSize(5, 500)]
    assert sampler.sizes(10, 40) == [BatchSize(5, 40)]
