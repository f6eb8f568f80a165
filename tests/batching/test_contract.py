"""The contract of every batching."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.batching import Batching, BatchSpec, Full, Fused, Groups, Hybrid, Sampled, Trapezoid, Vertices, Windows
from strobe.batching.subgraph_sampler import SubgraphSampler, sample_batch
from strobe.errors import OptionError
from strobe.registry import AXES, make_strategy
from tests.support.graphs import PlainGraph, dynamic_graphs
from tests.support.placement_cases import chain

FIXED: list[Batching] = [
    Full(),
    Fused(),
    Fused(memory=0, size=3),
    Windows(size=1),
    Windows(size=3),
    Groups(size=2),
    Groups(size=3, stride=1),
    Groups(size=4, stride=3),
    Vertices(size=1),
    Vertices(size=4),
    Trapezoid(),
    Trapezoid(full=1, decayed=2, min_keep=0.5, search_every=3, max_share=0.9),
    Sampled(),
    Sampled(history=2, size=7, fanouts=(3, 0, 2), passes=2),
]
"""Batchings with fixed batches."""

SAMPLED: list[Batching] = [
    Vertices(size=1, reservoir=0),
    Vertices(size=4, reservoir=0.5),
    Hybrid(),
    Hybrid(snapshots=1, vertices=1),
    Hybrid(snapshots=2, vertices=3, num_strata=2, memory=0),
    Hybrid(snapshots=(0.2, 0.5), vertices=(0.1, 3), size_policy="random", steps_per_epoch=5),
    Hybrid(snapshots=[0.2, 0.5], vertices=0.3, size_policy="learned"),
]
"""Batchings whose batches ranks sample during training."""

BATCHINGS = FIXED + SAMPLED

every_batching = pytest.mark.parametrize("batching", BATCHINGS, ids=str)
every_fixed = pytest.mark.parametrize("batching", FIXED, ids=str)
every_sampled = pytest.mark.parametrize("batching", SAMPLED, ids=str)


def sampler_of(batching: Batching) -> SubgraphSampler:
    assert isinstance(batching, Hybrid | Vertices)
    assert batching.sampler is not None
    return batching.sampler


def test_every_registered_batching_is_under_contract() -> None:
    assert {type(batching) for batching in BATCHINGS} == set(AXES["batching"].values())


@every_fixed
@settings(max_examples=30, deadline=None)
@given(plain=dynamic_graphs(carried=False, max_snapshots=7), data=st.data())
def test_every_training_cell_has_its_example_once_per_epoch(
    batching: Batching, plain: PlainGraph, data: st.DataObject
) -> None:
    graph = plain.build()
    first = data.draw(st.integers(0, len(graph)))
    times = range(first, data.draw(st.integers(first, len(graph))))
    targets = Counter(
        (t, v)
        for batch in batching.batches(graph, times, hops=2, seed=1)
        for t in batch.target_times
        for v in plain.present(t)
        if batch.seed_nodes is None or v in batch.seed_nodes
    )
    assert targets == Counter((t, v) for t, v in plain.cells() if t in times)


@every_fixed
@settings(max_examples=30, deadline=None)
@given(plain=dynamic_graphs(carried=False, max_snapshots=7, min_snapshots=1))
def test_batches_stay_within_training_snapshots(batching: Batching, plain: PlainGraph) -> None:
    graph = plain.build()
    times = range(1, len(graph))
    for batch in batching.batches(graph, times, hops=2):
        assert set(batch.target_times) <= set(batch.times) <= set(times)
        assert batch.seed_nodes is None or batch.hops == 2


@every_fixed
def test_batches_depend_on_the_seed_alone(batching: Batching) -> None:
    graph = chain([20] * 5)
    first, again = (batching.batches(graph, range(5), hops=1, seed=3) for _ in range(2))
    assert [_values(batch) for batch in first] == [_values(batch) for batch in again]


@every_batching
def test_batches_are_fixed_or_sampled_during_training(batching: Batching) -> None:
    batches = batching.batches(chain([20] * 5), range(5), hops=1, seed=3)
    assert bool(batches) == (not batching.uses_khop_cache) == (batching in FIXED)


@every_sampled
def test_sampled_batching_requires_local_inputs_and_per_rank_batches(batching: Batching) -> None:
    assert [need.fact for need in batching.needs] == ["local inputs"]
    assert "batches per rank" in batching.gives
    assert batching.needs_hops
    assert not batching.exact


@every_sampled
@given(num_nodes=st.integers(0, 30), num_snapshots=st.integers(0, 9), seed=st.integers(0, 100))
def test_sampled_batches_stay_within_snapshots_and_nodes_of_the_rank(
    batching: Batching, num_nodes: int, num_snapshots: int, seed: int
) -> None:
    times, own = range(2, 2 + num_snapshots), np.arange(num_nodes) * 3
    sampler = sampler_of(batching)
    strata = np.array_split(own, sampler.num_strata)
    for kind, size in enumerate(sampler.sizes(num_snapshots, num_nodes)):
        batch = sample_batch(times, strata, size, 2, (seed, kind))
        assert batch.target_times == batch.times
        assert (len(batch.times), batch.hops, batch.continues_state) == (size.snapshots, 2, False)
        assert set(batch.times) <= set(times)
        assert batch.seed_nodes is not None
        assert len(batch.seed_nodes) == size.nodes
        assert set(batch.seed_nodes.tolist()) <= set(own.tolist())
        assert bool(size.nodes and size.snapshots) == bool(num_nodes and num_snapshots)


@every_batching
def test_batching_survives_json(batching: Batching) -> None:
    assert make_strategy("batching", json.loads(json.dumps(batching.to_json()))) == batching


INVALID: list[tuple[type[Batching], dict[str, Any], str]] = [
    (Windows, {"size": 0}, "not 0"),
    (Groups, {"size": 0}, "not 0"),
    (Groups, {"size": 3, "stride": 4}, "not 4"),
    (Vertices, {"size": 0}, "not 0"),
    (Vertices, {"reservoir": -1}, "0 MiB"),
    (Trapezoid, {"full": 0}, "full"),
    (Trapezoid, {"decayed": -1}, "decayed"),
    (Trapezoid, {"min_keep": 1.5}, "min_keep"),
    (Trapezoid, {"search_every": -1}, "search_every"),
    (Trapezoid, {"search_every": 1, "max_share": 0.0}, "max_share"),
    (Trapezoid, {"max_share": 0.5}, "give search_every"),
    (Sampled, {"fanouts": ()}, "fanouts"),
    (Sampled, {"fanouts": -1}, "fanouts"),
    (Sampled, {"history": 0}, "history"),
    (Sampled, {"size": 0}, "size"),
]


@pytest.mark.parametrize(("batching", "options", "word"), INVALID, ids=str)
def test_options_out_of_range_raise(batching: type[Batching], options: dict[str, Any], word: str) -> None:
    with pytest.raises(OptionError, match=word):
        batching(**options)


def _values(batch: BatchSpec) -> tuple[object, ...]:
    return (
        batch.times,
        batch.target_times,
        batch.continues_state,
        None if batch.seed_nodes is None else batch.seed_nodes.tolist(),
    )
