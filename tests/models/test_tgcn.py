from __future__ import annotations

import pytest
import torch
from torch import Tensor

from strobe.models.tgcn import TGCN, GraphGate
from tests.support.dense_models import PerNode, Reference, adjacency, assert_equals_reference, randomised
from tests.support.graphs import AWKWARD, PlainGraph


def dense(model: TGCN) -> Reference:
    """T-GCN as the paper writes it, a snapshot at a time."""
    reset, update, candidate = model.gates

    def run(plain: PlainGraph, x: list[Tensor]) -> list[Tensor]:
        state, said = PerNode(model.width), []
        for t, rows in enumerate(x):
            a, h = adjacency(plain, t), state.of(plain.present(t))
            r = torch.sigmoid(gate(reset, a, rows, h))
            z = torch.sigmoid(gate(update, a, rows, h))
            c = torch.tanh(gate(candidate, a, rows, r * h))
            said.append(z * h + (1 - z) * c)
            state.put(plain.present(t), said[-1])
        return said

    return run


def gate(gate: torch.nn.Module, a: Tensor, x: Tensor, h: Tensor) -> Tensor:
    assert isinstance(gate, GraphGate)
    layers = list(zip(gate.weights, gate.biases, strict=True))
    for k, (weight, bias) in enumerate(layers):
        x = a @ (x @ weight.T) + bias
        x = x if k + 1 == len(layers) else torch.relu(x)
    return torch.cat([x, h], 1) @ gate.linear.weight.T + gate.linear.bias


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("plain", AWKWARD.values(), ids=AWKWARD)
def test_tgcn_equals_the_dense_formulas(plain: PlainGraph, layers: int) -> None:
    model = randomised(TGCN(3, 4, layers=layers))
    assert_equals_reference(model, dense(model), plain)
