"""What holds for every batching."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.batching import Batch, Batching, Full, Fused, Groups, Vertices, Windows
from strobe.registry import AXES, make
from tests.graphs import PlainGraph, dynamic_graphs
from tests.placement.cases import chain

BATCHINGS: list[Batching] = [
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
]

every_batching = pytest.mark.parametrize("batching", BATCHINGS, ids=str)


def test_every_registered_batching_is_under_contract() -> None:
    assert {type(batching) for batching in BATCHINGS} == set(AXES["batching"].values())


@every_batching
@settings(max_examples=30)
@given(plain=dynamic_graphs(carried=False, max_snapshots=7), data=st.data())
def test_an_epoch_asks_every_training_cell_exactly_once(
    batching: Batching, plain: PlainGraph, data: st.DataObject
) -> None:
    graph = plain.build()
    first = data.draw(st.integers(0, len(graph)))
    times = range(first, data.draw(st.integers(first, len(graph))))
    asked = Counter(
        (t, v)
        for batch in batching.batches(graph, times, hops=2, seed=1)
        for t in batch.asked
        for v in plain.present(t)
        if batch.targets is None or v in batch.targets
    )
    assert asked == Counter((t, v) for t, v in plain.cells() if t in times)


@every_batching
@settings(max_examples=30)
@given(plain=dynamic_graphs(carried=False, max_snapshots=7, min_snapshots=1))
def test_a_batch_holds_what_it_is_asked_about_and_nothing_outside_the_training_time(
    batching: Batching, plain: PlainGraph
) -> None:
    graph = plain.build()
    times = range(1, len(graph))
    for batch in batching.batches(graph, times, hops=2):
        assert set(batch.asked) <= set(batch.times) <= set(times)
        assert batch.targets is None or batch.hops == 2


@every_batching
def test_the_same_seed_gives_the_same_batches(batching: Batching) -> None:
    graph = chain([20] * 5)
    first, again = (batching.batches(graph, range(5), hops=1, seed=3) for _ in range(2))
    assert [_told(batch) for batch in first] == [_told(batch) for batch in again]


@every_batching
def test_a_batching_survives_json(batching: Batching) -> None:
    assert make("batching", json.loads(json.dumps(batching.to_json()))) == batching


def _told(batch: Batch) -> tuple[object, ...]:
    return batch.times, batch.asked, batch.carries, None if batch.targets is None else batch.targets.tolist()
