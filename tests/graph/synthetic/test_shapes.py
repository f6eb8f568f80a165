from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from strobe.errors import OptionError, UnknownNameError
from strobe.graph.synthetic import SHAPES, PublishedShape

SCALE = {name: 3_000 / shape.nodes for name, shape in SHAPES.items()}


@pytest.mark.parametrize("name", SHAPES)
def test_copies_have_the_published_counts_at_scale(name: str) -> None:
    shape, scale = SHAPES[name], SCALE[name]
    graph = PublishedShape(shape=name, scale=scale).write()
    assert len(graph) == shape.snapshots
    assert graph.num_nodes == 3_000
    assert graph.num_edges == round((shape.snapshot_edges or shape.edges) * scale)
    if not shape.joining:
        assert graph.num_cells == shape.snapshots * 3_000


@pytest.mark.parametrize("name", SHAPES)
def test_new_edges_add_up_to_the_published_number(name: str) -> None:
    made = PublishedShape(shape=name)
    assert made._events.new.sum() == SHAPES[name].edges
    assert (np.diff(made._events.active) >= 0).all()
    assert made._events.active[-1] == made.num_nodes == SHAPES[name].nodes


def test_full_scale_has_the_published_cells() -> None:
    # |TV| of the published table, in millions, to the digits it prints.
    published = {
        "slashdot": 4.088,
        "stackexch": 92.68,
        "rec-amazon": 150.2,
        "soc-flickr": 161.2,
        "soc-youtube": 257.9,
        "soc-bitcoin": 2211,
    }
    for name, millions in published.items():
        made = PublishedShape(shape=name)
        assert made.num_nodes * made.snapshots / 1e6 == pytest.approx(millions, rel=5e-4)


def test_edges_live_on_unchanged_for_their_life() -> None:
    made = PublishedShape(shape="slashdot", scale=0.02)
    graph, (new, _, life, longer) = made.write(), made._events
    assert life > 1
    for snapshot in graph:
        t = snapshot.t
        leaving = int(longer[t - life]) if t >= life else 0
        assert snapshot.num_edges == new[max(0, t - life + 1) : t + 1].sum() + leaving
    first, later = (Counter(map(tuple, np.stack(graph[t].edges()[:2], 1).tolist())) for t in (0, life - 1))
    assert first <= later


def test_bipartite_edges_run_from_the_lower_half_to_the_upper() -> None:
    for snapshot in PublishedShape(shape="rec-amazon", scale=SCALE["rec-amazon"]).write():
        src, dst, _ = snapshot.edges()
        assert (src < 1_500).all()
        assert (dst >= 1_500).all()


def test_nodes_of_a_joining_shape_arrive_over_time() -> None:
    graph = PublishedShape(shape="papers100M", scale=SCALE["papers100M"]).write()
    sizes = [snapshot.num_nodes for snapshot in graph]
    assert sizes == sorted(sizes)
    assert sizes[0] < 10
    assert sizes[-1] == 3_000


def test_features_replace_the_degrees() -> None:
    graph = PublishedShape(shape="papers100M", scale=SCALE["papers100M"], features=5).write()
    x = graph[-1].x
    assert x is not None
    assert x.shape == (3_000, 5)
    assert x.std() == pytest.approx(1, abs=0.05)
    plain = PublishedShape(shape="papers100M", scale=SCALE["papers100M"]).write()
    assert plain[-1].x is not None
    assert plain[-1].x.shape == (3_000, 2)


def test_the_smallest_scale_has_two_nodes() -> None:
    assert PublishedShape(shape="slashdot", scale=4e-5).write().num_nodes == 2
    with pytest.raises(OptionError, match="at least 4e-05"):
        PublishedShape(shape="slashdot", scale=1e-5)
    with pytest.raises(UnknownNameError, match="did you mean 'soc-flickr'"):
        PublishedShape(shape="soc-flicker")
