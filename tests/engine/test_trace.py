from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from strobe.engine.inputs.model_choice import choose_model
from strobe.engine.trace import ViewCall, sparse_products, trace_view_calls
from strobe.models import MODELS, make_model
from strobe.models.time import Attention, Recurrent, StackedLSTM
from strobe.view import View
from tests.support.model_cases import AWKWARD_GRAPHS, CHANGING, INPUTS, run, with_inputs

GRAPH = with_inputs(CHANGING.build())  # 6 snapshots
OPTIONS: dict[str, dict[str, Any]] = {"gat-lstm": {"heads": 2}, "dysat": {"heads": 2}}


class Busy(nn.Module):
    """Uses everything a view has, once or more."""

    width = 4

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.lift = nn.Linear(inputs, 4)
        self.recurrent = Recurrent(nn.LSTM(8, 5, num_layers=2))
        self.attention = Attention(4)
        self.lstm = nn.LSTM(4, 3)
        self.dropout = nn.Dropout(0.9)

    def forward(self, view: View) -> Tensor:
        view.pull(view.x)
        gathered = view.aggregate(view.aggregate(view.x), "mean_out")
        x = self.dropout(self.lift(gathered))
        view.pull(x)
        x = view.aggregate(x, "mean")
        both = view.over_time(self.recurrent, torch.cat([x, x], 1))
        x = view.over_time(self.attention, both[:, :4])
        view.over_time(StackedLSTM([self.lstm]), x, both[:, :2])
        state = x.new_zeros(view.num_slots, 2)
        for step, rows in zip(view.steps(), view.split(x), strict=True):
            step.aggregate(rows[:, :3], "mean_out")
            state = step.scatter_state(state, step.gather_state(state))
        return x


def test_every_use_of_a_view_is_noted_in_order_with_its_width() -> None:
    calls = trace_view_calls(Busy(INPUTS), GRAPH)
    assert calls[:8] == [
        ViewCall("pull", INPUTS, norm="sum", is_input=True),
        ViewCall("pull", INPUTS, norm="gcn", is_input=True, is_cached=True),
        ViewCall("pull", INPUTS, norm="mean_out", is_input=True, is_cached=True),
        ViewCall("pull", 4, norm="sum"),
        ViewCall("pull", 4, norm="mean"),
        ViewCall("over_time", 8, 5, has_row_state=True, state_columns=20),  # h and c of two layers
        ViewCall("over_time", 4, 4),
        ViewCall("over_time", 4 + 2, 3 + 2, has_row_state=True, state_columns=6),
    ]
    steps = [
        call
        for t in range(len(GRAPH))
        for call in (ViewCall("pull", 3, norm="mean_out", snapshot=t), ViewCall("gather_state", 2, snapshot=t))
    ]
    assert calls[8:] == steps


@pytest.mark.parametrize("name", MODELS)
def test_tracing_changes_neither_a_model_nor_its_output(name: str) -> None:
    torch.manual_seed(0)
    model = make_model(name, INPUTS, hidden=4, **OPTIONS.get(name, {}))
    model.eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    expected, _ = run(model, GRAPH)
    for training in (True, False):
        model.train(training)
        calls = trace_view_calls(model, GRAPH)
        assert model.training == training
        assert all(part.training == training for part in model.modules())
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)
    torch.testing.assert_close(run(model.eval(), GRAPH)[0], expected, rtol=0, atol=0)
    assert any(call.what == "pull" for call in calls)
    steps = name in ("dcrnn", "gconv-gru", "gc-lstm")
    assert all((call.snapshot is None) == (not steps or call.is_input) for call in calls if call.what == "pull")


@pytest.mark.parametrize(
    "name",
    sorted(MODELS.keys() - {"evolvegcn-o", "evolvegcn-h", "dcrnn", "sage", "gconv-gru", "gc-lstm", "gcn"}),
)
def test_only_recurrent_stages_relay_and_their_states_are_as_wide_as_all_they_keep(name: str) -> None:
    calls = trace_view_calls(make_model(name, INPUTS, hidden=4, **OPTIONS.get(name, {})), GRAPH)
    stages = [call for call in calls if call.what == "over_time"]
    assert stages
    for call in stages:
        assert call.has_row_state == (name != "dysat")
        assert (call.state_columns > 0) == call.has_row_state


@pytest.mark.parametrize("name", [name for name, graph in AWKWARD_GRAPHS.items() if graph.num_nodes])
def test_a_view_is_used_in_the_same_way_however_few_cells_it_has(name: str) -> None:
    expected = [call for call in trace_view_calls(Busy(INPUTS), GRAPH) if call.snapshot is None]
    assert [call for call in trace_view_calls(Busy(INPUTS), AWKWARD_GRAPHS[name]) if call.snapshot is None] == expected


def test_a_model_reads_as_far_as_it_has_sparse_products_in_a_snapshot() -> None:
    for name, layers, products in (("tgcn", None, 1), ("wd-gcn", 2, 2), ("wd-gcn", 3, 3), ("evolvegcn-o", 2, 2)):
        options = {} if layers is None else {"layers": layers}
        assert sparse_products(choose_model(name, options), GRAPH) == products, name
    assert sparse_products(choose_model(Busy), GRAPH) == 6, "and one in the only snapshot that is tried"


def test_tracing_uses_no_random_numbers() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    sparse_products(choose_model("tgcn"), GRAPH)
    assert torch.equal(torch.rand(3), expected)
