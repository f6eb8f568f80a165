from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from strobe.models import GConvGRU
from strobe.view import View, WindowData
from tests.support.dense_models import PerNode, assert_equals_reference, chebyshev, randomised, with_features
from tests.support.graphs import AWKWARD, PlainGraph
from tests.support.model_cases import CHANGING


def reference(model: GConvGRU, plain: PlainGraph, x: list[Tensor]) -> list[Tensor]:
    """The gates one by one, each with two convolutions, on dense matrices."""
    size, states, outputs = model.filter_size, PerNode(model.width), []
    weights = zip(model.of_input.chunk(3), model.of_state.chunk(3), model.bias.chunk(3), strict=True)
    reset, update, candidate = weights

    def gate(t: int, rows: Tensor, h: Tensor, weights: tuple[Tensor, ...]) -> Tensor:
        of_input, of_state, bias = weights
        both = ((rows, of_input), (h, of_state))
        terms = (torch.cat(chebyshev(plain, t, each, size), 1) @ weight.t() for each, weight in both)
        return sum(terms, bias)

    for t, rows in enumerate(x):
        nodes = plain.present(t)
        h = states.of(nodes)
        r, z = (torch.sigmoid(gate(t, rows, h, each)) for each in (reset, update))
        h = z * h + (1 - z) * torch.tanh(gate(t, rows, r * h, candidate))
        states.put(nodes, h)
        outputs.append(h)
    return outputs


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("cuts", [(), (2, 3)])
def test_outputs_and_gradients_equal_dense_gates(size: int, directed: bool, cuts: tuple[int, ...]) -> None:
    model = randomised(GConvGRU(3, 4, filter_size=size))
    assert_equals_reference(model, partial(reference, model), replace(CHANGING, directed=directed), *cuts)


@pytest.mark.parametrize("name", AWKWARD)
def test_outputs_on_awkward_graphs_equal_dense_gates(name: str) -> None:
    model = randomised(GConvGRU(3, 4))
    assert_equals_reference(model, partial(reference, model), AWKWARD[name])


def test_gates_share_aggregates() -> None:
    """Those of the inputs are computed once a run; of the state one per power for two gates and one for the third."""
    cells = WindowData(with_features(CHANGING)[0])
    GConvGRU(3, 4, filter_size=3)(View(cells))
    assert set(cells._aggregates) == {(), ("sym",), ("sym", "sym")}
    assert not cells._matrices
    assert {norm for alone in cells.single for norm in alone._matrices} == {"sym"}
