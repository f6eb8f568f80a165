"""Small graphs that models are tried on, and the one way tests run a model over them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from strobe.graph import DynamicGraph
from strobe.graph.features import PerCell
from strobe.view import Carry, View, WindowData
from tests.support.graphs import AWKWARD, PlainGraph, PlainSnapshot

INPUTS = 3


def with_inputs(graph: DynamicGraph, seed: int = 0) -> DynamicGraph:
    """The graph with finite features of its own for every cell."""
    rows = np.random.default_rng(seed).normal(size=(graph.num_cells, INPUTS)).astype(np.float32)
    return graph.with_features(PerCell(rows))


AWKWARD_GRAPHS = {name: with_inputs(plain.build()) for name, plain in AWKWARD.items()}

CHANGING = PlainGraph(
    6,
    [
        PlainSnapshot([0, 1, 2, 4], [(0, 1, 1.0), (1, 2, 0.5), (4, 1, 2.0), (0, 1, 0.25)], 0),
        PlainSnapshot([0, 2, 4], [(0, 2, 1.5), (2, 2, 0.5)], 1),  # node 1 pauses, node 2 meets itself
        PlainSnapshot([], [], 2),
        PlainSnapshot([0, 1, 2, 3, 4, 5], [(1, 0, 1.0), (5, 0, 3.0), (4, 5, 1.0), (2, 1, 0.5), (3, 4, 2.0)], 3),
        PlainSnapshot([1, 2, 3, 5], [(3, 1, 1.0), (1, 5, 1.0)], 4),  # node 2 is alone, nodes 0 and 4 have left
        PlainSnapshot([0, 1, 2, 3, 4, 5], [(1, 2, 1.0), (2, 3, 0.5), (0, 4, 2.0)], 5),
    ],
    weighted=True,
)
"""Nodes come late, pause and leave; parallel edges, a self-loop, an empty snapshot, a snapshot with everybody."""


def run(model: nn.Module, graph: DynamicGraph, carry: Carry | None = None) -> tuple[Tensor, Carry]:
    """Embeddings of all cells of a graph, in the model's precision, and what the pass leaves behind."""
    dtype = next((parameter.dtype for parameter in model.parameters()), torch.float32)
    view = View(WindowData(graph, dtype=dtype), carry)
    return model(view), view.carry


def assert_same_with_gradients(ours: Tensor, expected: Tensor, model: nn.Module, rtol: float = 1e-9) -> None:
    """Both outputs agree, and so do the gradients of a random sum of them in every parameter."""
    torch.testing.assert_close(ours, expected, rtol=rtol, atol=rtol)
    towards = torch.randn(ours.shape, dtype=ours.dtype, generator=torch.Generator().manual_seed(1))
    names = [name for name, _ in model.named_parameters()]
    found, wanted = (dict(zip(names, gradients(out, towards, model), strict=True)) for out in (ours, expected))
    torch.testing.assert_close(found, wanted, rtol=rtol, atol=rtol)


def gradients(out: Tensor, towards: Tensor, model: nn.Module) -> list[Any]:
    """Gradients of the sum of ``out * towards``, zeros for parameters that it does not depend on."""
    return list(
        torch.autograd.grad((out * towards).sum(), list(model.parameters()), materialize_grads=True, retain_graph=True)
    )
