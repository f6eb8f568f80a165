from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strobe
from strobe.graph import Degrees, DynamicGraph, NodeNames, PerCell, Snapshot, Standardized, Static, from_edges
from strobe.graph.digest import content_digest
from strobe.graph.features import Concatenated, FeatureProvider, RandomSignature
from strobe.graph.storage import ArrayStorage

EDGES = [np.array([[0, 1, 2], [1, 2, 0]]), np.array([[0, 3], [3, 1]]), np.array([[0, 1, 2], [1, 2, 0]])]


def make(**options: Any) -> DynamicGraph:
    defaults: dict[str, Any] = {
        "num_nodes": 4,
        "weights": [np.arange(1.0, len(each.T) + 1) for each in EDGES],
        "nodes": [[0, 1, 2], [0, 1, 3], [0, 1, 2]],
        "x": np.arange(8, dtype=np.float32).reshape(4, 2),
        "y": [np.arange(3), np.arange(3), np.arange(3)],
        "times": [2, 3, 5],
    }
    info = options.pop("info", {"classes": ["a", "b", "c"]})
    return replace(from_edges(EDGES, **defaults | options), info=info)


GRAPH = make()
STORED = GRAPH.storage
assert isinstance(STORED, ArrayStorage)


def test_equal_graphs_have_one_digest() -> None:
    assert content_digest(make()) == content_digest(GRAPH)
    assert content_digest(GRAPH[:]) == content_digest(GRAPH)


@given(st.data())
def test_any_changed_element_of_any_array_changes_the_digest(data: st.DataObject) -> None:
    names = NodeNames.from_names(["ant", "bee", "cat", "dog"])
    graph = replace(GRAPH, names=names)
    assert isinstance(STORED, ArrayStorage)
    arrays = {f"storage {name}": array for name, array in STORED.arrays().items()}
    arrays |= {f"names {name}": array for name, array in names.arrays().items()}
    assert isinstance(graph.features, Static)
    assert isinstance(graph.labels, PerCell)
    arrays |= {"features": graph.features.values, "labels": graph.labels.values}
    what = data.draw(st.sampled_from(sorted(arrays)))
    changed = arrays[what].copy()
    at = data.draw(st.integers(0, changed.nbytes - 1))
    changed.reshape(-1).view(np.uint8)[at] ^= data.draw(st.integers(1, 255))
    kind, _, name = what.partition(" ")
    if kind == "storage":
        other = replace(graph, storage=replace(STORED, **{name: changed}))
    elif kind == "names":
        other = replace(graph, names=NodeNames(**{**names.arrays(), name: changed}))
    else:
        other = replace(graph, **{kind: type(getattr(graph, kind))(changed)})
    assert content_digest(other) != content_digest(graph)


@pytest.mark.parametrize(
    "change",
    [
        lambda: make(times=[2, 3, 6]),
        lambda: make(times=["2", "3", "5"]),
        lambda: make(directed=False),
        lambda: make(weights=None),
        lambda: make(num_nodes=5, x=np.zeros((5, 2), np.float32)),
        lambda: make(info={"classes": ["a", "c", "b"]}),
        lambda: make(x=None),
        lambda: GRAPH[1:],
        lambda: GRAPH[::2],
        lambda: GRAPH.subset([0, 1, 2]),
        lambda: GRAPH.with_features(Degrees()),
        lambda: GRAPH.with_features(Degrees(log=True)),
        lambda: GRAPH.with_features(RandomSignature(2, 1)),
        lambda: GRAPH.with_features(Standardized(GRAPH.features, (0.0, 0.0), (1.0, 2.0))),  # type: ignore[arg-type]
        lambda: GRAPH.with_features(Concatenated((GRAPH.features, Degrees()))),  # type: ignore[arg-type]
        lambda: GRAPH.with_labels(None),
        lambda: replace(GRAPH, names=NodeNames.from_names([1, 2, 3, 4])),
    ],
)
def test_anything_else_that_differs_changes_the_digest(change: Callable[[], DynamicGraph]) -> None:
    found = content_digest(change())
    assert found is not None
    assert found != content_digest(GRAPH)


class Own(FeatureProvider):
    """A provider whose rows no recipe describes."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (1,)

    def rows(self, snapshot: Snapshot) -> Any:
        return np.zeros((snapshot.num_nodes, 1))

    def recipe(self) -> dict[str, Any]:
        return {"kind": "degrees", "log": False}


def test_what_cannot_be_known_has_no_digest() -> None:
    for features in (Own(), Standardized(Own(), (0.0,), (1.0,)), Concatenated((Degrees(), Own()))):
        assert content_digest(GRAPH.with_features(features)) is None
    assert content_digest(replace(GRAPH, info={"when": object()})) is None


def test_a_saved_graph_has_the_digest_of_its_checksums(tmp_path: Path) -> None:
    GRAPH.save(tmp_path / "one")
    opened = strobe.open(tmp_path / "one")
    assert opened.digest == content_digest(opened)
    make().save(tmp_path / "same")
    assert strobe.open(tmp_path / "same").digest == opened.digest
    make(x=np.ones((4, 2), np.float32)).save(tmp_path / "other")
    assert strobe.open(tmp_path / "other").digest != opened.digest
    for view in (opened[1:], opened.with_features(Degrees()), opened.subset([0, 1])):
        assert view.digest is None
        assert content_digest(view) not in (None, opened.digest)
