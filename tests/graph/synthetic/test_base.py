"""Properties of all generators, and the growth curves they share."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.errors import OptionError
from strobe.graph import DiskSink, open_graph
from strobe.graph.synthetic import Changing, Generator, Growth, PublishedShape, Social, Uneven, draws
from strobe.graph.synthetic.base import CURVES, Curve, apportion, growth_curve

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
def test_same_seed_gives_the_same_graph(generator: Generator) -> None:
    assert generator.write() == generator.write()


@every_kind
def test_another_seed_gives_another_graph_of_the_same_size(generator: Generator) -> None:
    ours, theirs = generator.write(), replace(generator, seed=1).write()
    assert ours != theirs
    assert (ours.num_nodes, len(ours)) == (theirs.num_nodes, len(theirs))


@every_kind
def test_disk_and_memory_hold_the_same_graph(generator: Generator, tmp_path: Path) -> None:
    with DiskSink(tmp_path / "graph") as sink:
        generator.write(sink)
    assert open_graph(tmp_path / "graph", verify=True) == generator.write()
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]
    assert {path.suffix for path in (tmp_path / "graph").iterdir()} == {".npy", ".json"}


@every_kind
def test_graph_does_not_depend_on_the_size_of_parts(generator: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = generator.write()
    monkeypatch.setattr(draws, "CHUNK", 17)
    assert generator.write() == whole


@every_kind
def test_no_edge_is_a_self_loop(generator: Generator) -> None:
    for snapshot in generator.write():
        src, dst = snapshot.arcs()
        assert not (src == dst).any()


@every_kind
def test_progress_counts_every_snapshot(generator: Generator) -> None:
    seen: list[tuple[int, int | None]] = []
    graph = generator.write(on_progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, len(graph)) for done in range(1, len(graph) + 1)]
    assert len(graph) == generator.num_snapshots


@every_kind
def test_info_has_the_parameters(generator: Generator) -> None:
    info = json.loads(json.dumps(dict(generator.write().info)))
    assert info["generator"] == generator.name
    assert type(generator)(**info["parameters"]) == generator


def test_numpy_numbers_are_valid_parameters() -> None:
    info = Growth(nodes=np.int64(50), snapshots=np.int32(3)).write().info  # type: ignore[arg-type]
    assert json.loads(json.dumps(info["parameters"]))["nodes"] == 50


@pytest.mark.parametrize("seed", [-1, 1.5, True, "7"])
def test_bad_seeds_are_refused(seed: object) -> None:
    with pytest.raises(OptionError, match="seed must be a whole number of at least 0, not"):
        Social(seed=seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("curve", CURVES)
def test_curves_rise_from_one_to_the_ratio(curve: Curve) -> None:
    sizes = growth_curve(50, 4.0, curve)
    assert sizes[[0, -1]] == pytest.approx([1, 4])
    assert (np.diff(sizes) > 0).all()


def test_curves_differ_in_the_middle() -> None:
    middle = {curve: growth_curve(3, 4.0, curve)[1] for curve in CURVES}
    assert middle["exponential"] < middle["linear"] < middle["saturating"]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.integers(0, 10**9))
def test_apportioned_parts_add_up_and_follow_the_weights(weights: list[float], total: int) -> None:
    parts = apportion(np.array(weights), total)
    assert parts.sum() == total
    assert (parts >= 0).all()
    if sum(weights) > 1e-3:
        assert np.abs(parts - np.array(weights) / sum(weights) * total).max() < 1 + 1e-6 * total
