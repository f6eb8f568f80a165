from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from strobe.graph.synthetic import Social
from strobe.models.evolvegcn import EvolveGCNH, EvolveGCNO, EvolvingConvH, EvolvingConvO
from strobe.view import View, WindowData
from tests.support.dense_models import (
    Reference,
    adjacency,
    assert_equals_reference,
    gradients,
    outputs,
    randomised,
    torch_gru,
    with_features,
)
from tests.support.graphs import AWKWARD, PlainGraph

Either = EvolveGCNO | EvolveGCNH
BOTH = pytest.mark.parametrize("kind", [EvolveGCNO, EvolveGCNH])


def dense(model: Either) -> Reference:
    """A weight per layer that takes one GRU step at every snapshot, empty or not, and then convolves."""

    def run(plain: PlainGraph, x: list[Tensor]) -> list[Tensor]:
        layers: list[Any] = list(model.layers)
        weights = [layer.weight for layer in layers]
        said = []
        for t, features in enumerate(x):
            rows = features
            if model.lift is not None:
                rows = torch.relu(rows @ model.lift.weight.T + model.lift.bias)
            for k, layer in enumerate(layers):
                rows = torch.relu(rows) if k else rows
                weights[k] = torch_gru(read(layer, rows, weights[k]), weights[k], layer.cell)
                rows = adjacency(plain, t) @ rows @ weights[k]
            said.append(torch.cat([rows, features], 1) if model.skip else rows)
        return said

    return run


def read(layer: torch.nn.Module, x: Tensor, weight: Tensor) -> Tensor:
    if isinstance(layer, EvolvingConvO):
        return weight
    assert isinstance(layer, EvolvingConvH)
    scores = x @ layer.direction / layer.direction.norm()
    best = sorted(range(len(x)), key=lambda i: (-scores[i].item(), i))[: len(weight)]
    rows = [x[i] * torch.tanh(scores[i]) for i in best]
    rows += [torch.zeros_like(layer.direction)] * (len(weight) - len(rows))
    return torch.stack(rows)


@BOTH
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("lift", [True, False])
@pytest.mark.parametrize("plain", AWKWARD.values(), ids=AWKWARD)
def test_evolvegcn_equals_the_dense_formulas(plain: PlainGraph, lift: bool, skip: bool, kind: type[Either]) -> None:
    model = randomised(kind(3, 4, lift=lift, skip=skip))
    assert_equals_reference(model, dense(model), plain)


@BOTH
def test_readout_reads_the_features_that_the_embedding_has(kind: type[Either]) -> None:
    graph, _ = with_features(AWKWARD["isolated nodes"])
    model = kind(3, 4, skip=True).double()
    weight, bias = torch.randn(2, model.width, dtype=torch.float64), torch.randn(2, dtype=torch.float64)
    expected = torch.relu(outputs(model, graph)) @ weight.T + bias
    found = model.forward_readout(View(WindowData(graph, dtype=torch.float64)), weight, bias)
    assert model.width == 7
    torch.testing.assert_close(found, expected)


@BOTH
@pytest.mark.parametrize("lift", [True, False])
@pytest.mark.parametrize("layers", [2, 3])
def test_weights_of_layers_evolve_independently(layers: int, lift: bool, kind: type[Either]) -> None:
    model = randomised(kind(3, 2, lift=lift, layers=layers))
    assert_equals_reference(model, dense(model), AWKWARD["isolated nodes"])


def test_parallel_snapshots_equal_sequential_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, _ = with_features(AWKWARD["isolated nodes"])
    model = randomised(EvolveGCNH(3, 4))
    alone = outputs(model, graph)
    monkeypatch.setattr("strobe.ops.dense.segments.SHARES", 0)
    torch.testing.assert_close(outputs(model, graph), alone, rtol=0, atol=0)
    torch.testing.assert_close(gradients(model, outputs(model, graph)), gradients(model, alone), rtol=0, atol=1e-15)


def test_segment_without_examples_still_updates_the_weight() -> None:
    """Then the top rows are the only way back to its cells: their sparse gradient must not be the only one."""
    torch.manual_seed(0)
    graph = Social(nodes=40, snapshots=4, edges=80).write()
    model = EvolveGCNH(2, 4)
    first = View(WindowData(graph[:2]))
    model(first)
    second = View(WindowData(graph[2:]), first.carry)
    model(second).sum().backward()
    assert model.lift is not None
    assert bool(model.lift.weight.grad.isfinite().all())  # type: ignore[union-attr]
