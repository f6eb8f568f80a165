from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

from strobe.models import Block, Stack
from strobe.models.structure import GCN
from strobe.view import View, WindowData
from tests.support.model_cases import CHANGING, INPUTS, assert_same_with_gradients, run, with_inputs


def test_block_runs_structure_then_time_stage() -> None:
    torch.manual_seed(0)
    structure, time = GCN(INPUTS, 4), nn.GRU(4, 5)
    view, again = (View(WindowData(with_inputs(CHANGING.build()))) for _ in range(2))
    both = Block(structure, time)(view, view.x)
    assert both.shape == (view.num_cells, 5)
    one_after_the_other = Block(None, time)(again, Block(structure)(again, again.x))
    assert torch.equal(both, one_after_the_other)


def test_empty_block_is_the_identity() -> None:
    view = View(WindowData(with_inputs(CHANGING.build())))
    assert Block(None)(view, view.x) is view.x


def test_stack_chains_blocks_and_saves_a_state_for_each() -> None:
    torch.manual_seed(0)
    stack = Stack(Block(GCN(INPUTS, 4), nn.GRU(4, 4)), Block(GCN(4, 6), nn.LSTM(6, 6)), width=6).double()
    graph = with_inputs(CHANGING.build())
    whole, carry = run(stack, graph)
    assert whole.shape == (graph.num_cells, stack.width)
    assert len(carry) == 2
    first, carry = run(stack, graph[:3])
    second, _ = run(stack, graph[3:], carry)
    assert_same_with_gradients(torch.cat([first, second]), whole, stack)


@pytest.mark.parametrize(
    "structure",
    [GCNConv(INPUTS, 4), SAGEConv(INPUTS, 4), GATConv(INPUTS, 2, heads=2), GCN(INPUTS, 4)],
    ids=lambda module: type(module).__name__,
)
@pytest.mark.parametrize("time", [nn.GRU(4, 4), nn.LSTM(4, 4, num_layers=2)], ids=lambda module: type(module).__name__)
def test_all_convolutions_combine_with_all_time_stages(structure: nn.Module, time: nn.Module) -> None:
    stack = Stack(Block(structure, time), width=4)
    out, _ = run(stack, with_inputs(CHANGING.build()))
    assert out.shape == (CHANGING.build().num_cells, 4)
    out.sum().backward()
    assert all(parameter.grad is not None for parameter in stack.parameters())


def test_time_stage_equals_the_torch_module_on_each_sequence() -> None:
    torch.manual_seed(0)
    gru = nn.GRU(INPUTS, 4, num_layers=2).double()
    graph = with_inputs(CHANGING.build())
    view = View(WindowData(graph, dtype=torch.float64))
    out = Block(None, gru)(view, view.x)
    for node in range(CHANGING.num_nodes):
        cells = [row for row, (_, v) in enumerate(CHANGING.cells()) if v == node]
        torch.testing.assert_close(out[cells], gru(view.x[cells])[0], rtol=1e-9, atol=1e-12)
