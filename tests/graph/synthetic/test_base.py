"""Properties of all generators, and what they share: growth curves, random rows, evolving edges."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.errors import OptionError
from strobe.graph import DiskSink, open_graph
from strobe.graph.synthetic import Changing, Generator, Growth, PublishedShape, Social, Uneven, base
from strobe.graph.synthetic.base import (
    CURVES,
    EvolvingEdges,
    RandomRows,
    RowRuns,
    apportion,
    avoid_self_loops,
    growth_curve,
    power_law_indices,
)
from strobe.ops.sparse.csr import FloatArray

SMALL: list[Generator] = [
    Social(nodes=300, snapshots=8, edges=1_000, labels=True),
    Uneven(cells=3_000, edges=2_000, snapshots=10, mean_length=4, length_spread=2, edge_spread=50),
    Changing(nodes=200, edges=600, snapshots=4, features=16, hot=0.1),
    Growth(snapshots=12, nodes=100, edges=500),
    PublishedShape(shape="slashdot", scale=0.01),
    PublishedShape(shape="rec-amazon", scale=0.0003),
    PublishedShape(shape="papers100M", scale=1e-5, features=3),
]
every_kind = pytest.mark.parametrize("generator", SMALL, ids=lambda g: getattr(g, "shape", g.name))


@every_kind
def test_the_seed_decides_everything_but_the_size(generator: Generator) -> None:
    seen: list[tuple[int, int | None]] = []
    graph = generator.write(on_progress=lambda done, total: seen.append((done, total)))
    assert graph == generator.write()
    assert seen == [(done, len(graph)) for done in range(1, len(graph) + 1)]
    assert len(graph) == generator.snapshots
    other = replace(generator, seed=1).write()
    assert graph != other
    assert (graph.num_nodes, len(graph)) == (other.num_nodes, len(other))
    for snapshot in graph:
        src, dst = snapshot.arcs()
        assert not (src == dst).any()


@every_kind
def test_disk_memory_and_small_chunks_give_the_same_graph(
    generator: Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DiskSink(tmp_path / "graph") as sink:
        generator.write(sink)
    graph = generator.write()
    assert open_graph(tmp_path / "graph", verify=True) == graph
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]
    assert {path.suffix for path in (tmp_path / "graph").iterdir()} == {".npy", ".json"}
    monkeypatch.setattr(base, "CHUNK", 17)
    assert generator.write() == graph


@every_kind
def test_info_has_the_parameters(generator: Generator) -> None:
    info = json.loads(json.dumps(dict(generator.write().info)))
    assert info["generator"] == generator.name
    assert type(generator)(**info["parameters"]) == generator


def test_numpy_numbers_are_valid_parameters() -> None:
    info = Growth(nodes=np.int64(50), snapshots=np.int32(3)).write().info  # type: ignore[arg-type]
    assert json.loads(json.dumps(info["parameters"]))["nodes"] == 50


NAN = float("nan")
BAD_PARAMETERS: list[tuple[type[Generator], dict[str, Any], str]] = [
    *((Social, {"seed": seed}, "seed must be a whole number of at least 0") for seed in (-1, 1.5, True, "7")),
    (Social, {"nodes": 0}, "nodes .* at least 1, not 0"),
    (Social, {"edges": -1}, "edges .* at least 0"),
    (Social, {"churn": 1.5}, "churn must be a number from 0 to 1, not 1.5"),
    (Social, {"away": 1.0}, "away .* 0.9"),
    (Social, {"inside": NAN}, "inside .* 0 to 1"),
    (Social, {"exponent": 2.0}, "exponent .* 2.05"),
    (Social, {"spell": 0}, "spell .* at least 1"),
    (Social, {"communities": 1_000}, "1,000 communities .* 1,000 nodes"),
    (Social, {"nodes": 1}, "communities"),
    (Growth, {"curve": "spiral"}, "curve .* linear, exponential, saturating, not 'spiral'"),
    (Growth, {"snapshots": 0}, "snapshots .* 1 to 1,000,000"),
    (Growth, {"ratio": 0.5}, "ratio .* from 1"),
    (Growth, {"nodes": 3, "ratio": 100}, "first snapshot has 1 node"),
    (Uneven, {"cells": 0}, "cells .* at least 1"),
    (Uneven, {"mean_length": 101}, "mean_length .* 1 to 100, not 101"),
    (Uneven, {"edge_spread": -1.0}, "edge_spread .* at least 0"),
    (Uneven, {"length_spread": float("inf")}, "length_spread"),
    (Changing, {"nodes": 1}, "30,000 edges"),
    (Changing, {"segments": 129}, "segments .* 1 to 128, not 129"),
    (Changing, {"feature_change": -0.1}, "feature_change .* 0 to 1"),
    (Changing, {"heat": 0.5}, "heat .* at least 1"),
    *((PublishedShape, {"scale": scale}, "scale") for scale in (0, -1, NAN, 1e6)),
]


@pytest.mark.parametrize(("kind", "options", "message"), BAD_PARAMETERS)
def test_bad_parameters_are_refused(kind: type[Generator], options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        kind(**options)


TINY: list[Social | Growth | Uneven | Changing] = [
    Social(nodes=1, edges=0, snapshots=1),
    Social(nodes=1, edges=0, snapshots=3, away=0.9),
    Social(nodes=2, edges=5, snapshots=4, communities=1, start=1, churn=1, inside=0, away=0),
    Social(nodes=16, edges=0, start=0),
    Social(nodes=100, edges=50, inside=1, churn=0, exponent=2.1, away=0),
    Growth(snapshots=1, nodes=1, edges=0),
    Growth(snapshots=1, nodes=2, edges=4),
    Growth(nodes=10, edges=0),
    Growth(snapshots=1_000, nodes=20, edges=50),
    Changing(nodes=1, edges=0, snapshots=1),
    Changing(nodes=2, edges=3, hot=1),
    Uneven(cells=1, edges=0, snapshots=1, mean_length=1),
    Uneven(cells=2, edges=9, snapshots=1, mean_length=1),
    Uneven(cells=7, edges=0, snapshots=3, mean_length=3, length_spread=100),
    Uneven(cells=60, edges=30, snapshots=2, mean_length=1.5, edge_spread=1e9),
]


@pytest.mark.parametrize("tiny", TINY)
def test_tiny_graphs_have_the_given_edges_and_cells(tiny: Social | Growth | Uneven | Changing) -> None:
    graph = tiny.write()
    assert len(graph) == tiny.snapshots
    assert graph.num_edges == tiny.edges * (1 if isinstance(tiny, Uneven) else tiny.snapshots)
    assert graph.num_cells == getattr(tiny, "cells", graph.num_cells)


@pytest.mark.parametrize(
    "generator",
    [
        Social(nodes=5_000, snapshots=2, edges=20_000),
        Growth(snapshots=3, nodes=5_000, edges=40_000),
        PublishedShape(shape="soc-flickr", scale=0.0013),
    ],
)
def test_degrees_are_skewed(generator: Generator) -> None:
    degree = generator.write()[-1].in_degree
    assert degree.max() > 20 * degree.mean()
    assert np.median(degree) < degree.mean()


def test_curves_rise_from_one_to_the_ratio_and_differ_in_the_middle() -> None:
    for curve in CURVES:
        sizes = growth_curve(50, 4.0, curve)
        assert sizes[[0, -1]] == pytest.approx([1, 4])
        assert (np.diff(sizes) > 0).all()
    middle = {curve: growth_curve(3, 4.0, curve)[1] for curve in CURVES}
    assert middle["exponential"] < middle["linear"] < middle["saturating"]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.integers(0, 10**9))
def test_apportioned_parts_add_up_and_follow_the_weights(weights: list[float], total: int) -> None:
    parts = apportion(np.array(weights), total)
    assert parts.sum() == total
    assert (parts >= 0).all()
    if sum(weights) > 1e-3:
        assert np.abs(parts - np.array(weights) / sum(weights) * total).max() < 1 + 1e-6 * total


def runs(*each: tuple[int, int, int]) -> RowRuns:
    """From (first, length, born) of each."""
    return RowRuns(*np.array(each, np.int64).reshape(-1, 3).T)


def test_any_row_can_be_read_again() -> None:
    stream = RandomRows(5, 1)
    rows = stream.rows(0, 100)
    assert not np.isin(rows, RandomRows(5, 2).rows(0, 100)).any()
    assert rows.shape == (100, 4)
    np.testing.assert_array_equal(stream.rows(30, 50), rows[30:80])
    assert ((rows >= 0) & (rows < 1)).all()


GAPS = st.sampled_from([0, 1, 5, 127, 128, 129, 1000])


@given(st.lists(st.tuples(GAPS, st.integers(0, 9)), max_size=8), st.booleans(), st.sampled_from([1, 7, 1 << 20]))
def test_parts_are_the_rows_of_each_run_wherever_it_lies(
    segments: list[tuple[int, int]], backwards: bool, chunk: int
) -> None:
    each, row = [], 0
    for born, (gap, length) in enumerate(segments):
        each.append((row + gap, length, born))
        row += gap + length
    each = each[::-1] if backwards else each
    stream = RandomRows(3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "CHUNK", chunk)
        parts = list(stream.parts(runs(*each)))
    rows = [stream.rows(first, length) for first, length, _ in each]
    np.testing.assert_array_equal(
        np.concatenate([np.empty((0, 4)), *(numbers for numbers, _ in parts)]),
        np.concatenate([np.empty((0, 4)), *rows]),
    )
    births = itertools.chain.from_iterable([born] * length for _, length, born in each)
    assert [born for _, borns in parts for born in borns.tolist()] == list(births)


def test_power_law_reaches_every_index_and_prefers_low_ones() -> None:
    index = power_law_indices(np.linspace(0, 1, 100_001)[:-1], 100, exponent=3.0)
    times = np.bincount(index)
    assert times.size == 100
    assert times.min() > 0
    # P(index < i) = sqrt(i / size) for exponent 3: of 100,000 the first gets 10,000, the first quarter half.
    assert times[0] == pytest.approx(10_000, rel=0.01)
    assert times[:25].sum() == pytest.approx(50_000, rel=0.01)


def test_power_law_stays_below_the_size_of_each_row() -> None:
    size = np.array([1, 2, 3, 2**31 - 2])
    assert (power_law_indices(np.full(4, np.nextafter(1, 0)), size, exponent=2.5) == size - 1).all()


def test_self_loops_move_to_the_next_index() -> None:
    assert avoid_self_loops(np.array([0, 1, 2]), np.array([0, 2, 2]), 3).tolist() == [1, 2, 0]


def alive(ties: EvolvingEdges) -> set[tuple[float, ...]]:
    return {tuple(row) for numbers, _ in ties.parts() for row in numbers.tolist()}


def test_every_snapshot_has_the_given_number_of_edges_and_none_returns() -> None:
    ties, past, before = EvolvingEdges(0), set[tuple[float, ...]](), set[tuple[float, ...]]()
    for count in (10, 25, 7, 0, 3, *[100] * 9):
        ties.step(count, 0.3)
        now = alive(ties)
        assert len(now) == count
        past |= before - now
        assert not now & past
        before = now


@pytest.mark.parametrize("churn", [0.0, 0.3, 1.0])
def test_churn_is_the_share_that_ends(churn: float) -> None:
    ties, kept = EvolvingEdges(0), []
    ties.step(20_000, churn)
    for _ in range(3):
        before = alive(ties)
        ties.step(20_000, churn)
        kept.append(len(alive(ties) & before))
    # Binomial with standard deviation sqrt(20,000 * 0.3 * 0.7) = 65; five standard deviations; exact at 0 and 1.
    assert kept == pytest.approx([20_000 * (1 - churn)] * 3, abs=5 * 65 if 0 < churn < 1 else 0)


def test_the_oldest_go_when_there_are_too_many() -> None:
    ties = EvolvingEdges(0)
    for count in (10, 20, 30):
        ties.step(count, 0.0)
    ties.step(15, 0.0)
    born = np.concatenate([born for _, born in ties.parts()])
    assert np.bincount(born).tolist() == [0, 5, 10]


@pytest.mark.parametrize("churn", [0.0, 0.01])
def test_a_long_past_is_not_read_birth_by_birth(churn: float, monkeypatch: pytest.MonkeyPatch) -> None:
    ties = EvolvingEdges(0)
    for t in range(500):
        ties.step(10 * t, churn)
    reads: list[int] = []
    read = RandomRows.rows

    def counted(stream: RandomRows, first: int, count: int) -> FloatArray:
        reads.append(count)
        return read(stream, first, count)

    monkeypatch.setattr(RandomRows, "rows", counted)
    assert len(alive(ties)) == 4990
    assert len(reads) < 10
