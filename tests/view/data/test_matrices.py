"""Windows whose snapshots share their structure share matrices, which are those of the same graph without sharing."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.graph import DynamicGraph, from_edges
from strobe.ops.sparse.csr import Csr, FloatArray, IntArray
from strobe.ops.sparse.leading_block import LeadingBlocks
from strobe.ops.sparse.normalize import Norm, normalize
from strobe.ops.sparse.spmm import Sparse, spmm
from strobe.view import WindowData
from strobe.view.data import matrices as matrices_module
from strobe.view.data.matrices import StructureCache
from strobe.view.offload import OffloadedWindows
from tests.support.graphs import PlainGraph, dynamic_graphs
from tests.support.unshared import without_sharing

NORMS: tuple[Norm, ...] = get_args(Norm)


def static_graph(snapshots: int = 12, *, directed: bool = True, nodes: int = 6) -> DynamicGraph:
    rng = np.random.default_rng(0)
    x = list(rng.standard_normal((snapshots, nodes, 2)).astype(np.float32))
    return from_edges([rng.integers(0, nodes, (2, 15))] * snapshots, num_nodes=nodes, x=x, directed=directed)


def same_matrix(a: Sparse, b: Sparse) -> bool:
    pairs = (a.row_ptr, b.row_ptr), (a.col, b.col), (a.weight, b.weight)
    return a.symmetric == b.symmetric and all(
        (one is None and other is None) or (one is not None and other is not None and torch.equal(one, other))
        for one, other in pairs
    )


@settings(deadline=None, max_examples=60)
@given(dynamic_graphs(max_snapshots=6), st.sampled_from(NORMS), st.data())
def test_matrices_and_sequences_are_those_without_sharing(plain: PlainGraph, norm: Norm, data: st.DataObject) -> None:
    graph = plain.build()
    start = data.draw(st.integers(0, len(graph)))
    part = slice(start, data.draw(st.integers(start, len(graph))))
    window, apart = WindowData(graph[part]), WindowData(without_sharing(graph)[part])
    assert same_matrix(window.matrix(norm), apart.matrix(norm))
    assert same_matrix(window.matrix(norm).transposed, apart.matrix(norm).transposed)
    assert window.sequences.cell_ptr == apart.sequences.cell_ptr
    assert window.sequences.slots.tolist() == apart.sequences.slots.tolist()
    for each, other in zip(window.single, apart.single, strict=True):
        assert same_matrix(each.matrix(norm), other.matrix(norm))
    if graph.features is not None:
        expected = apart.aggregate_input(apart.x, norm)
        assert (
            torch.equal(
                window.aggregate_input(window.x, norm),
                expected,
            )
            or expected.isnan().any()
        )
        streamed = WindowData(graph[part]).aggregate_features(norm)
        np.testing.assert_array_equal(streamed.numpy(), expected.numpy())


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("directed", [True, False])
def test_large_structures_are_multiplied_without_copies(
    norm: Norm, directed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = static_graph(5, directed=directed)
    expected = WindowData(graph).matrix(norm)
    monkeypatch.setattr(matrices_module, "_MIN_BLOCK_ENTRIES", 1)
    window = WindowData(graph)
    product = window.product(norm)
    assert isinstance(product, LeadingBlocks)
    assert len({id(block.matrix) for block in product.blocks}) == 1
    rows = torch.randn(window.num_cells, 3)
    x, y = rows.clone().requires_grad_(), rows.clone().requires_grad_()
    out, copied = spmm(product, x), spmm(expected, y)
    assert torch.equal(out, copied)
    for each in (out, copied):
        each.square().sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    assert torch.equal(x.grad, y.grad)


def test_windows_of_equal_structures_share_one_matrix_and_one_transpose() -> None:
    graph = static_graph()
    first, second, shorter = WindowData(graph[:5]), WindowData(graph[5:10]), WindowData(graph[10:])
    assert first.matrix("gcn") is second.matrix("gcn")
    assert first.matrix("gcn").transposed is second.matrix("gcn").transposed
    assert first.sequences is second.sequences
    assert shorter.matrix("gcn") is not first.matrix("gcn")
    assert first.single[0].matrix("sum") is second.single[4].matrix("sum")


def test_each_structure_is_normalized_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, calls = static_graph(), list[Norm]()

    def counted(norm: Norm, row_ptr: IntArray, col: IntArray, weight: FloatArray | None) -> Csr:
        calls.append(norm)
        return normalize(norm, row_ptr, col, weight)

    monkeypatch.setattr(matrices_module, "normalize", counted)
    for start in range(0, 12, 4):
        window = WindowData(graph[start : start + 4])
        window.matrix("mean")
        window.aggregate_input(window.x, "mean")
    assert len(calls) <= 2  # on the host, and for the products of single snapshots


def test_views_of_some_nodes_and_graphs_without_sharing_share_nothing() -> None:
    graph = static_graph()
    assert StructureCache.of(graph.subset([0, 1, 2])) is None
    assert StructureCache.of(without_sharing(graph)) is None
    assert StructureCache.of(graph[3:]) is StructureCache.of(graph)


def test_an_offloaded_window_shares_nothing() -> None:
    graph = static_graph()
    windows = [WindowData(graph[:6]), WindowData(graph[6:])]
    for window in windows:
        window.offloaded = OffloadedWindows(torch.device("cpu"))
    first, second = windows
    assert first.matrix("gcn") is not second.matrix("gcn")
    assert first.single[0].matrix("gcn") is not second.single[0].matrix("gcn")


def test_the_cache_keeps_the_latest_and_what_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrices_module, "_MAX_CACHED_BYTES", 0)
    held, made = WindowData(static_graph()).matrix("gcn"), list[int]()
    cache = StructureCache(np.zeros(2, np.int32))

    def make(number: int) -> tuple[Any]:
        made.append(number)
        return (np.zeros(9),)

    assert cache.get("used", lambda: held) is held
    for number in (0, 1, 1, 0):
        cache.get(number, partial(make, number))
    assert made == [0, 1, 0]
    assert cache.get("used", lambda: WindowData(static_graph()).matrix("gcn")) is held


def test_the_cache_goes_with_its_graph() -> None:
    graph = static_graph()
    WindowData(graph).matrix("gcn")
    cache = StructureCache.of(graph)
    assert cache is not None
    alive = weakref.ref(cache)
    del graph, cache
    gc.collect()
    assert alive() is None


def test_many_threads_make_a_value_once() -> None:
    cache, made = StructureCache(np.zeros(2, np.int32)), list[int]()

    def make() -> tuple[Any]:
        made.append(1)
        return (np.zeros(1),)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: cache.get("key", make), range(100)))
    assert made == [1]
