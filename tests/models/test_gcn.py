from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GCNConv

from strobe.models import StaticGCN
from strobe.models.structure import GCN
from tests.support.dense_models import adjacency, assert_equals_reference, outputs, randomised, with_features
from tests.support.graphs import AWKWARD, PlainGraph
from tests.support.model_cases import CHANGING


def reference(model: StaticGCN, plain: PlainGraph, x: list[Tensor]) -> list[Tensor]:
    found = []
    for t, rows in enumerate(x):
        for k, layer in enumerate(model.convolutions):
            assert isinstance(layer, GCN)
            assert layer.bias is not None
            rows = adjacency(plain, t) @ (torch.relu(rows) if k else rows) @ layer.weight.t() + layer.bias
        found.append(rows)
    return found


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("directed", [True, False])
def test_outputs_and_gradients_equal_dense_products(layers: int, directed: bool) -> None:
    model = randomised(StaticGCN(3, 4, layers=layers))
    assert_equals_reference(model, partial(reference, model), replace(CHANGING, directed=directed), 2, 3)


@pytest.mark.parametrize("name", AWKWARD)
def test_outputs_on_awkward_graphs_equal_dense_products(name: str) -> None:
    model = randomised(StaticGCN(3, 4))
    assert_equals_reference(model, partial(reference, model), AWKWARD[name])


def test_outputs_equal_pytorch_geometric() -> None:
    graph, x = with_features(replace(CHANGING, directed=False))
    model, theirs = randomised(StaticGCN(3, 4)), [GCNConv(3, 4).double(), GCNConv(4, 4).double()]
    with torch.no_grad():
        for layer, other in zip(model.convolutions, theirs, strict=True):
            other.lin.weight.copy_(layer.weight)
            other.bias.copy_(layer.bias)
    wanted = []
    for snapshot, rows in zip(graph, x, strict=True):
        read, reader = (torch.tensor(each, dtype=torch.int64) for each in snapshot.arcs())
        edges, weights = torch.stack([read, reader]), torch.tensor(snapshot.weight, dtype=torch.float64)
        wanted.append(theirs[1](torch.relu(theirs[0](rows, edges, weights)), edges, weights))
    torch.testing.assert_close(outputs(model, graph), torch.cat(wanted), rtol=1e-9, atol=1e-9)
