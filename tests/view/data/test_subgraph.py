"""Cells cut out of a cache: targets get what they would get in the whole graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import strobe
from strobe.engine.inputs.model_choice import ModelChoice, choose_model
from strobe.engine.trace import model_reads
from strobe.graph import DynamicGraph
from strobe.models import MODELS
from strobe.ops.sparse.csr import IntArray
from strobe.view import KHopCache, ModelReads, SubgraphData, View, WindowData
from tests.support.model_cases import AWKWARD_GRAPHS, with_inputs

EXACT: list[tuple[str, dict[str, Any]]] = [
    *(("tgcn", {"layers": layers}) for layers in (1, 2, 3)),
    *(("evolvegcn-o", {"layers": layers}) for layers in (1, 2, 3)),
    ("gat-lstm", {"heads": 2}),
    ("sage", {}),
    ("wd-gcn", {}),
    *(("roland", {"layers": 1, "convolution": "sage", "update": update}) for update in ("mlp", "moving-average")),
    ("gcn", {"layers": 3}),
]
"""Models that convolve before they go along sequences."""


def graph_of(directed: bool, weighted: bool = False) -> DynamicGraph:
    random = np.random.default_rng(0)
    nodes, snapshots = 40, 6
    present = [np.sort(random.choice(nodes, 30, replace=False)) for _ in range(snapshots)]
    edges = [np.stack([random.choice(each, 60), random.choice(each, 60)]) for each in present]
    weights = [random.uniform(0.5, 2, 60).astype(np.float32) for _ in edges] if weighted else None
    made = strobe.from_edges(edges, weights=weights, nodes=present, num_nodes=nodes, directed=directed)
    return with_inputs(made)


def cached(graph: DynamicGraph, own: IntArray, reads: ModelReads) -> KHopCache:
    mask = np.zeros(graph.num_nodes, bool)
    mask[own] = True
    return KHopCache(graph, range(len(graph)), mask, reads, torch.float64).build()


def outputs(choice: ModelChoice, cells: WindowData) -> tuple[Tensor, torch.nn.Module]:
    torch.manual_seed(3)
    model = choice.make(3).double()
    return model(View(cells)), model


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize(("name", "options"), EXACT, ids=str)
def test_seed_nodes_get_the_outputs_of_the_whole_graph(name: str, options: dict[str, Any], directed: bool) -> None:
    graph, choice = graph_of(directed, weighted=True), choose_model(name, {"hidden": 4, **options})
    own = np.arange(0, 40, 2)
    cache = cached(graph, own, model_reads(choice, graph))
    targets = np.array([0, 4, 10, 38])
    times = range(1, 5)
    cells = SubgraphData(cache, times, cache.khop_subgraph(times, cache.local_ids(targets)), torch.device("cpu"))
    some, part = outputs(choice, cells)
    whole, model = outputs(choice, WindowData(graph[1:5], dtype=torch.float64))
    rows = np.concatenate(
        [np.flatnonzero(np.isin(graph[t].nodes, targets)) + int(graph.cell_ptr[t] - graph.cell_ptr[1]) for t in times]
    )
    expected = whole[torch.from_numpy(rows)]
    assert len(expected) == len(cells.seed_rows) > 4
    torch.testing.assert_close(some[cells.seed_rows], expected, rtol=1e-12, atol=1e-12)
    weigh = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (some[cells.seed_rows] * weigh).sum().backward()
    (expected * weigh).sum().backward()
    for mine, theirs in zip(part.parameters(), model.parameters(), strict=True):
        if theirs.grad is not None:
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_subgraph_of_all_nodes_equals_the_window(name: str) -> None:
    graph, choice = graph_of(directed=True), choose_model(name, {"hidden": 4})
    everyone = np.arange(40)
    cache = cached(graph, everyone, model_reads(choice, graph))
    found = cache.khop_subgraph(range(6), cache.local_ids(everyone))
    cells = SubgraphData(cache, range(6), found, torch.device("cpu"))
    some, _ = outputs(choice, cells)
    whole, _ = outputs(choice, WindowData(graph, dtype=torch.float64))
    torch.testing.assert_close(some, whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", AWKWARD_GRAPHS)
def test_awkward_graphs_can_be_cached(name: str) -> None:
    graph, choice = AWKWARD_GRAPHS[name], choose_model("evolvegcn-o", {"hidden": 4, "layers": 2})
    if not len(graph):
        return
    own = np.arange(0, graph.num_nodes, 2)
    cache = cached(graph, own, ModelReads((("gcn",),), ("gcn",), 1))
    cells = SubgraphData(
        cache, range(len(graph)), cache.khop_subgraph(range(len(graph)), cache.local_ids(own)), torch.device("cpu")
    )
    out, _ = outputs(choice, cells)
    assert len(out) == cells.num_cells


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("name", ["tgcn", "evolvegcn-o", "dcrnn", "gat-lstm", "dysat", "gconv-gru"])
def test_bytes_are_predicted_before_a_cache_is_built(name: str, directed: bool) -> None:
    graph, choice = graph_of(directed), choose_model(name, {"hidden": 4})
    mask = np.zeros(40, bool)
    mask[:10] = True
    cache = KHopCache(graph, range(6), mask, model_reads(choice, graph), torch.float32)
    predicted = cache.predicted_bytes()
    taken = cache.build().num_bytes
    assert taken <= predicted <= 1.1 * taken


def test_outermost_rows_are_empty_and_farther_cells_are_not_cached() -> None:
    path = np.stack([np.arange(5), np.arange(1, 6)])  # 0 -> 1 -> … -> 5: a cell reads the one before it
    graph = with_inputs(strobe.from_edges([path], num_nodes=6))
    cache = cached(graph, np.array([5]), ModelReads(norms=("sum",), hops=2))
    assert cache.nodes.tolist() == [3, 4, 5]
    assert np.diff(cache.rows["sum"].row_ptr).tolist() == [0, 1, 1]
