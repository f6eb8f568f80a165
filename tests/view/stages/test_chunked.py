"""A structure stage in chunks gives what it gives in one go, and takes the memory of a chunk."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, SAGEConv

from strobe.comm.ledger import Ledger
from strobe.graph import DynamicGraph
from strobe.graph.synthetic import Social
from strobe.models import Block, make_model
from strobe.models.base import Stack
from strobe.models.structure import Structure
from strobe.ops.runtime.memory_trace import measure_peak_bytes
from strobe.view import View, WindowData
from strobe.view.stages.chunked import ChunkedStage, FusedChunk, run_sample
from tests.support.model_cases import AWKWARD_GRAPHS, CHANGING, INPUTS, with_inputs

MODELS: dict[str, dict[str, Any]] = {
    "wd-gcn": {"layers": 2},
    "gat-lstm": {"heads": 2},
    "dysat": {"heads": 2, "layers": 2},
    "mpnn-lstm": {},
    "sage": {"layers": 2},
    "tgcn": {"layers": 2},
    "roland": {"convolution": "gat", "update": "moving-average"},
    "gcn": {},
}


def model_of(name: str) -> nn.Module:
    torch.manual_seed(0)
    return make_model(name, INPUTS, hidden=4, **MODELS[name]).double()


def first_convolution(model: nn.Module) -> Structure:
    return next(each for each in model.modules() if isinstance(each, Structure))


def cells_of(
    graph: DynamicGraph, *, num_chunks: int = 0, budget: float = 0.0, ledger: Ledger | None = None
) -> WindowData:
    cells = WindowData(graph, dtype=torch.float64)
    if num_chunks:
        chunk = np.random.default_rng(0).integers(0, num_chunks, cells.num_cells)
        cells.chunked_stage = ChunkedStage(cells, chunk, budget, Ledger() if ledger is None else ledger)
    return cells


def passed(model: nn.Module, cells: WindowData) -> tuple[Tensor, list[Tensor]]:
    """Outputs, and gradients of a random sum of them."""
    model = deepcopy(model)
    torch.manual_seed(3)  # for those who drop numbers
    out = model(View(cells))
    towards = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(1))
    (out * towards).sum().backward()
    return out.detach(), [weight.grad for weight in model.parameters() if weight.grad is not None]


@pytest.mark.parametrize("budget", [0.0, 3e4, 1e12])
@pytest.mark.parametrize("name", MODELS)
def test_chunks_give_the_same_values_and_gradients(name: str, budget: float) -> None:
    graph, model = with_inputs(CHANGING.build()), model_of(name)
    whole = passed(model, cells_of(graph))
    torch.testing.assert_close(
        passed(model, cells_of(graph, num_chunks=5, budget=budget)), whole, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("graph", AWKWARD_GRAPHS.values(), ids=list(AWKWARD_GRAPHS))
def test_chunks_of_awkward_graphs(graph: DynamicGraph) -> None:
    model = model_of("dysat")
    whole = passed(model, cells_of(graph))
    torch.testing.assert_close(passed(model, cells_of(graph, num_chunks=3)), whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("convolution", [GATConv(INPUTS, 4, dropout=0.5), SAGEConv(INPUTS, 4)], ids=["gat", "sage"])
def test_pytorch_geometric_convolutions_run_in_chunks_and_recompute_with_the_same_random_state(
    convolution: nn.Module,
) -> None:
    graph = with_inputs(CHANGING.build())
    model = Stack(Block(convolution), width=4).double()
    cells = cells_of(graph, num_chunks=4)
    first, again = passed(model, cells), passed(model, cells)
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    if isinstance(convolution, SAGEConv):
        torch.testing.assert_close(first, passed(model, cells_of(graph)), rtol=1e-12, atol=1e-12)


def community() -> DynamicGraph:
    return with_inputs(Social(nodes=300, snapshots=6, edges=1_200).write())


def test_fused_chunks_load_fewer_rows() -> None:
    graph, model = community(), model_of("dysat")
    loaded = []
    for budget in (0.0, 2e5, 1e12):
        ledger = Ledger()
        cells = cells_of(graph, num_chunks=40, budget=budget, ledger=ledger)
        passed(model, cells)
        loaded.append(ledger.drain()["rows_loaded"])
    assert loaded[0] > loaded[1] > loaded[2]


def test_fused_chunks_stay_within_the_memory_budget() -> None:
    graph, model = community(), model_of("dysat")
    cells = cells_of(graph, num_chunks=60, budget=4e5)
    passed(model, cells)
    assert cells.chunked_stage is not None
    layer = first_convolution(model)
    rows = torch.randn(cells.num_cells, INPUTS, dtype=torch.float64)
    weights = list(layer.parameters())

    def run_chunk(chunk: FusedChunk, loaded: Tensor) -> Tensor:
        return View(chunk).run_whole(layer.convolve, loaded)  # type: ignore[arg-type]

    chunks = cells.chunked_stage.fused_chunks(run_chunk, weights, rows, layer)
    assert 1 < len(chunks) < 60
    for chunk in chunks:
        work = partial(run_sample, run_chunk, chunk, weights, rows)
        assert measure_peak_bytes(work, rows.device) <= 1.25 * 4e5


def test_chunks_save_few_tensors_for_backward() -> None:
    graph, model = community(), model_of("dysat")
    layer = first_convolution(model)

    def held(cells: WindowData) -> int:
        x = torch.ones(cells.num_cells, INPUTS, dtype=torch.float64, requires_grad=True)
        layer(View(cells), x)  # chunks are found, matrices made
        kept: list[int] = []

        def keep(saved: Tensor) -> Tensor:
            kept.append(saved.numel())
            return saved

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved):
            layer(View(cells), x)
        return sum(kept)

    assert held(cells_of(graph, num_chunks=10)) < 0.5 * held(cells_of(graph))
