"""Node tables: features and labels joined by id, for all time or dated."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from strobe.errors import InputError, OptionError
from strobe.graph import DynamicGraph
from strobe.graph.ingest import ByColumn, ByFile, Every, NodeTable, ingest

EVENTS = {"s": ["a", "b", "a"], "d": ["b", "c", "c"], "t": [0, 10, 20]}


def read(nodes: NodeTable, **options: Any) -> DynamicGraph:
    return ingest(EVENTS, src="s", dst="d", time="t", clock=Every(10), nodes=nodes, **options)


def assert_features(graph: DynamicGraph, t: int, expected: npt.ArrayLike) -> None:
    x = graph[t].x
    assert x is not None
    np.testing.assert_array_equal(x, expected)


def test_features_and_labels_are_joined_by_id() -> None:
    table = {"id": ["c", "a", "b"], "age": [3, 1, 2], "size": [0.5, 1.5, 2.5], "kind": ["x", "y", None]}
    graph = read(NodeTable(source=table, id="id", features=["age", "size"], label="kind"))
    assert_features(graph, 0, [[1, 1.5], [2, 2.5]])
    assert np.asarray(graph[0].y).tolist() == [1, -1]
    assert graph.info["classes"] == ["x", "y"]


def test_nodes_without_events_are_part_of_the_graph() -> None:
    table = {"id": ["a", "b", "c", "z"], "age": [1, 2, 3, 4]}
    graph = read(NodeTable(source=table, id="id", features=["age"]), presence="always")
    assert graph.num_nodes == 4
    assert graph[0].num_nodes == 4


def test_a_node_without_features_is_refused_or_gets_zeros() -> None:
    table = {"id": ["a", "b"], "age": [1, 2]}
    with pytest.raises(InputError, match="1 nodes have no features"):
        read(NodeTable(source=table, id="id", features=["age"]))
    graph = read(NodeTable(source=table, id="id", features=["age"], missing="zero"))
    assert_features(graph, 2, [[1], [0]])


def test_numbers_stay_labels_and_fractions_become_targets() -> None:
    whole = read(NodeTable(source={"id": ["a", "b"], "y": [4, 7]}, id="id", label="y"))
    assert np.asarray(whole[1].y).tolist() == [7, -1]
    targets = read(NodeTable(source={"id": ["a", "b"], "y": [0.5, 7]}, id="id", label="y"))
    assert targets[1].y is not None
    assert targets[1].y[0] == 7
    assert np.isnan(targets[1].y[1])


def test_dated_rows_hold_until_the_next_and_make_their_node_present() -> None:
    table = {
        "id": ["a", "b", "a", "a", "c", "c"],
        "when": [-100, 5, 12, 15, 0, 21],
        "age": [1, 2, 3, 4, 5, 6],
    }
    graph = read(NodeTable(source=table, id="id", time="when", features=["age"]))
    assert [graph[t].nodes.tolist() for t in range(3)] == [[0, 1, 2], [0, 1, 2], [0, 2]]
    assert_features(graph, 0, [[1], [2], [5]])
    assert_features(graph, 1, [[4], [2], [5]])
    assert_features(graph, 2, [[4], [6]])


def test_a_dated_node_without_features_yet_is_refused() -> None:
    table = {"id": ["a", "b", "c"], "when": [0, 10, 10], "age": [1, 2, 3]}
    with pytest.raises(InputError, match="1 nodes have no features in snapshot 0"):
        read(NodeTable(source=table, id="id", time="when", features=["age"]))


def test_two_rows_for_one_node_are_refused() -> None:
    with pytest.raises(InputError, match="two rows for one node"):
        read(NodeTable(source={"id": ["a", "a"], "age": [1, 2]}, id="id", features=["age"]))
    table = {"id": ["a", "a"], "when": [3, 3], "age": [1, 2]}
    with pytest.raises(InputError, match="two rows for one node and time"):
        read(NodeTable(source=table, id="id", time="when", features=["age"], missing="zero"))


def test_dated_rows_need_a_clock_they_can_be_placed_by() -> None:
    nodes = NodeTable(source={"id": ["a"], "when": [0], "y": [1]}, id="id", time="when", label="y")
    with pytest.raises(OptionError, match="not by file"):
        ingest([EVENTS], src="s", dst="d", clock=ByFile(), nodes=nodes)
    stray = NodeTable(source={"id": ["a"], "when": [7], "y": [1]}, id="id", time="when", label="y")
    with pytest.raises(InputError, match="'7', which is no snapshot"):
        ingest(EVENTS, src="s", dst="d", clock=ByColumn("t"), nodes=stray)
