from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from strobe.engine.trace import trace_view_calls
from strobe.models import GCLSTM
from tests.support.dense_models import PerNode, assert_equals_reference, chebyshev, randomised, with_features
from tests.support.graphs import AWKWARD, PlainGraph
from tests.support.model_cases import CHANGING


def reference(model: GCLSTM, plain: PlainGraph, x: list[Tensor]) -> list[Tensor]:
    """The gates one by one on dense matrices."""
    hidden, cells, outputs = PerNode(model.width), PerNode(model.width), []
    weights = list(zip(model.of_input.chunk(4), model.of_state.chunk(4), model.bias.chunk(4), strict=True))
    for t, rows in enumerate(x):
        nodes = plain.present(t)
        h, c = hidden.of(nodes), cells.of(nodes)
        terms = torch.cat(chebyshev(plain, t, h, model.filter_size), 1)
        i, f, o, g = (rows @ of_input.t() + terms @ of_state.t() + bias for of_input, of_state, bias in weights)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        hidden.put(nodes, h)
        cells.put(nodes, c)
        outputs.append(h)
    return outputs


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("cuts", [(), (2, 3)])
def test_outputs_and_gradients_equal_dense_gates(size: int, directed: bool, cuts: tuple[int, ...]) -> None:
    model = randomised(GCLSTM(3, 4, filter_size=size))
    assert_equals_reference(model, partial(reference, model), replace(CHANGING, directed=directed), *cuts)


@pytest.mark.parametrize("name", AWKWARD)
def test_outputs_on_awkward_graphs_equal_dense_gates(name: str) -> None:
    model = randomised(GCLSTM(3, 4))
    assert_equals_reference(model, partial(reference, model), AWKWARD[name])


def test_gates_share_the_products_of_a_snapshot() -> None:
    graph, _ = with_features(CHANGING)
    calls = trace_view_calls(GCLSTM(3, 4, filter_size=3), graph)
    products = [(call.snapshot, call.columns) for call in calls if call.what == "pull"]
    assert products == [(t, 4) for t in range(len(graph)) for _ in range(2)]
    assert [call.columns for call in calls if call.what == "gather_state"] == [8] * len(graph), "h and c in one row"
