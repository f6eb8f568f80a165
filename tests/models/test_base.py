from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

from strobe.errors import OptionError
from strobe.models import Block, Model, Stack, make_model
from strobe.models.base import check_sizes
from strobe.models.structure import GCN
from strobe.view import View, WindowData
from tests.support.model_cases import CHANGING, INPUTS, assert_same_with_gradients, run, with_inputs


def test_model_without_forward_is_abstract() -> None:
    with pytest.raises(TypeError, match="forward"):
        Model()  # type: ignore[abstract]


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


def test_convolution_of_a_window_equals_that_of_single_snapshots() -> None:
    torch.manual_seed(0)
    convolution = SAGEConv(INPUTS, 4)
    view = View(WindowData(with_inputs(CHANGING.build())))
    alone = [Block(convolution)(step, step.x) for step in view.steps()]
    torch.testing.assert_close(Block(convolution)(view, view.x), torch.cat(alone))


def test_time_stage_equals_the_torch_module_on_each_sequence() -> None:
    torch.manual_seed(0)
    gru = nn.GRU(INPUTS, 4, num_layers=2).double()
    graph = with_inputs(CHANGING.build())
    view = View(WindowData(graph, dtype=torch.float64))
    out = Block(None, gru)(view, view.x)
    for node in range(CHANGING.num_nodes):
        cells = [row for row, (_, v) in enumerate(CHANGING.cells()) if v == node]
        torch.testing.assert_close(out[cells], gru(view.x[cells])[0], rtol=1e-9, atol=1e-12)


def test_block_refuses_modules_that_are_no_stages() -> None:
    with pytest.raises(OptionError, match="Linear is not a structure stage"):
        Block(nn.Linear(2, 2))
    with pytest.raises(OptionError, match="Conv1d is not a time stage"):
        Block(None, nn.Conv1d(2, 2, 1))
    with pytest.raises(OptionError, match="bidirectional"):
        Block(None, nn.GRU(2, 2, bidirectional=True))


def test_models_need_no_base_class() -> None:
    class Own(nn.Module):
        width = 2

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(INPUTS, 2)

        def forward(self, view: View) -> Tensor:
            out: Tensor = self.linear(view.aggregate(view.x, "mean"))
            return out

    out, carry = run(Own(), with_inputs(CHANGING.build()))
    assert out.shape[1] == Own.width
    assert carry == []


def test_check_sizes_takes_numbers_and_lists() -> None:
    check_sizes(hidden=1, widths=[3, 2])
    with pytest.raises(OptionError, match="hidden must be at least 1, not 0"):
        check_sizes(inputs=1, hidden=0)
    with pytest.raises(OptionError, match="widths must be at least 1, not -2"):
        check_sizes(widths=[3, -2])


@pytest.mark.parametrize("options", [{"layers": 10**9}, {"hidden": 10**12}, {"hidden": 10**7}])
def test_models_with_absurd_sizes_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(OptionError, match=next(iter(options))):
        make_model("tgcn", 3, **options)
