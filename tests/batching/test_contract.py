"""What holds for every batching."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.batching import Batch, Batching, Full, Fused, Groups, Hybrid, Sampled, Trapezoid, Vertices, Windows
from strobe.batching.drawing import Drawing, draw
from strobe.registry import AXES, make
from tests.graphs import PlainGraph, dynamic_graphs
from tests.placement.cases import chain

CUT: list[Batching] = [
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
    Trapezoid(full=1, decayed=2, keep=0.5, tune=3, most=0.9),
    Sampled(),
    Sampled(history=2, size=7, fanouts=(3, 0, 2), passes=2),
]
"""An epoch always has the same batches."""

DRAWN: list[Batching] = [
    Vertices(size=1, reservoir=0),
    Vertices(size=4, reservoir=0.5),
    Hybrid(),
    Hybrid(snapshots=1, vertices=1),
    Hybrid(snapshots=2, vertices=3, groups=2, memory=0),
    Hybrid(snapshots=(0.2, 0.5), vertices=(0.1, 3), sizes="random", steps=5),
    Hybrid(snapshots=(0.2, 0.5), vertices=0.3, sizes="learned"),
]
"""Ranks draw batches while they train."""

BATCHINGS = CUT + DRAWN

every_batching = pytest.mark.parametrize("batching", BATCHINGS, ids=str)
every_cut = pytest.mark.parametrize("batching", CUT, ids=str)
every_drawn = pytest.mark.parametrize("batching", DRAWN, ids=str)


def drawing_of(batching: Batching) -> Drawing:
    assert batching.drawing is not None
    return batching.drawing


def test_every_registered_batching_is_under_contract() -> None:
    assert {type(batching) for batching in BATCHINGS} == set(AXES["batching"].values())


@every_cut
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


@every_cut
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


@every_cut
def test_the_same_seed_gives_the_same_batches(batching: Batching) -> None:
    graph = chain([20] * 5)
    first, again = (batching.batches(graph, range(5), hops=1, seed=3) for _ in range(2))
    assert [_told(batch) for batch in first] == [_told(batch) for batch in again]


@every_batching
def test_batches_are_cut_beforehand_or_drawn_while_training(batching: Batching) -> None:
    known = batching.batches(chain([20] * 5), range(5), hops=1, seed=3)
    assert bool(known) == (batching.drawing is None) == (batching in CUT)


@every_drawn
def test_who_draws_needs_all_at_hand_and_has_batches_of_its_own(batching: Batching) -> None:
    assert [need.fact for need in batching.needs] == ["inputs at hand"]
    assert "batches per rank" in batching.gives
    assert batching.wants_hops
    assert not batching.exact


@every_drawn
@given(num_nodes=st.integers(0, 30), num_snapshots=st.integers(0, 9), seed=st.integers(0, 100))
def test_what_is_drawn_is_in_the_training_time_and_of_the_ranks_nodes(
    batching: Batching, num_nodes: int, num_snapshots: int, seed: int
) -> None:
    times, own = range(2, 2 + num_snapshots), np.arange(num_nodes) * 3
    drawing = drawing_of(batching)
    groups = np.array_split(own, drawing.groups)
    for kind, size in enumerate(drawing.sizes(num_snapshots, num_nodes)):
        batch = draw(times, groups, size, 2, (seed, kind))
        assert batch.asked == batch.times
        assert (len(batch.times), batch.hops, batch.carries) == (size.snapshots, 2, False)
        assert set(batch.times) <= set(times)
        assert batch.targets is not None
        assert len(batch.targets) == size.nodes
        assert set(batch.targets.tolist()) <= set(own.tolist())
        assert bool(size.nodes and size.snapshots) == bool(num_nodes and num_snapshots)


@pytest.mark.parametrize("batching", [batching for batching in DRAWN if drawing_of(batching).steps is None], ids=str)
def test_an_epoch_of_batches_of_a_middling_size_asks_as_many_cells_as_there_are(batching: Batching) -> None:
    drawing, counts = drawing_of(batching), (40, 600)
    cells = sorted(size.snapshots * size.nodes for size in drawing.sizes(*counts))
    asked = drawing.num_steps(*counts) * cells[len(cells) // 2]
    assert asked == pytest.approx(40 * 600, rel=0.05)


@every_batching
def test_a_batching_survives_json(batching: Batching) -> None:
    assert make("batching", json.loads(json.dumps(batching.to_json()))) == batching


def _told(batch: Batch) -> tuple[object, ...]:
    return batch.times, batch.asked, batch.carries, None if batch.targets is None else batch.targets.tolist()
