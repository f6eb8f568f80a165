from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.errors import StrobeError
from strobe.graph import DynamicGraph
from strobe.graph.diff import KeyedArcs, key_arcs
from strobe.ops.sparse.csr import Csr
from strobe.store.delta.edges import ArcWindow, PackedKeys, to_csr
from tests.support.graphs import PlainGraph, dynamic_graphs
from tests.support.stored_sequences import same_bits, slow_at_first


def added(graph: DynamicGraph, window: int = 100) -> ArcWindow:
    arcs = ArcWindow(graph.num_nodes)
    for t in range(len(graph)):
        arcs.add(t, arcs_of(graph, t))
        if len(arcs.times) > window:
            arcs.drop()
    return arcs


def arcs_of(graph: DynamicGraph, t: int) -> KeyedArcs:
    shot = graph[t]
    return key_arcs(shot.nodes, (shot.row_ptr, shot.col, shot.weight), graph.num_nodes, directed=graph.directed)


def same_rows(graph: DynamicGraph, t: int, rows: Csr) -> bool:
    shot = graph[t]
    weights = (rows[2] is None) == (shot.weight is None)
    pairs = zip(rows, (shot.row_ptr, shot.col, shot.weight), strict=True)
    return weights and all(same_bits(a, b) for a, b in pairs if a is not None and b is not None)


def rebuilt(graph: DynamicGraph, arcs: KeyedArcs, t: int) -> Csr:
    return to_csr(arcs, graph[t].nodes, graph.num_nodes, directed=graph.directed)


@slow_at_first
@given(dynamic_graphs(max_snapshots=6, max_edges=14, carried=False), st.integers(1, 6))
def test_arcs_come_back_to_the_bit_while_the_window_slides(plain: PlainGraph, window: int) -> None:
    graph = plain.build()
    arcs = added(graph, window)
    assert arcs.times == list(range(max(0, len(graph) - window), len(graph)))
    for t in arcs.times:
        assert same_rows(graph, t, rebuilt(graph, arcs.arcs_at(t), t))


@slow_at_first
@given(dynamic_graphs(min_snapshots=1, max_snapshots=5, max_edges=14, carried=False), st.data())
def test_arcs_rebuilt_from_a_later_snapshot_are_the_same(plain: PlainGraph, data: st.DataObject) -> None:
    graph = plain.build()
    arcs, near = added(graph), data.draw(st.integers(0, len(graph) - 1))
    for t in range(len(graph)):
        found = arcs.arcs_at(t, (near, arcs_of(graph, near)))
        assert same_rows(graph, t, rebuilt(graph, found, t))


def test_an_unchanged_snapshot_costs_nothing_and_a_new_weight_a_weight_and_an_index() -> None:
    arcs = ArcWindow(100)
    weight = np.ones(500, np.float32)
    arcs.add(0, KeyedArcs(np.arange(500) * 7, weight))
    before = arcs.nbytes
    arcs.add(1, KeyedArcs(np.arange(500) * 7, weight))
    assert arcs.nbytes == before
    weight = weight.copy()
    weight[250] = np.nan
    arcs.add(2, KeyedArcs(np.arange(500) * 7, weight))
    assert arcs.nbytes - before == 4 + 4
    found = arcs.arcs_at(2).weight
    assert found is not None
    assert same_bits(found, weight)


@slow_at_first
@given(st.lists(st.integers(0, 24), max_size=60))
def test_packed_keys_come_back_in_no_more_bytes(keys: list[int]) -> None:
    given_keys = np.sort(np.array(keys, np.int64))
    packed = PackedKeys.of(given_keys, 5)
    assert packed.unpack(5).tolist() == given_keys.tolist()
    assert sum(array.nbytes for array in packed.data) <= given_keys.nbytes


def test_invalid_snapshots_raise() -> None:
    arcs = ArcWindow(3)
    with pytest.raises(StrobeError, match="no snapshot to drop"):
        arcs.drop()
    arcs.add(2, KeyedArcs(np.array([1]), None))
    with pytest.raises(StrobeError, match="1 after 2"):
        arcs.add(1, KeyedArcs(np.array([1]), None))
    with pytest.raises(StrobeError, match="snapshot 3 is not in the window"):
        arcs.arcs_at(3)
