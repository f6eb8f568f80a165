"""Slow, obvious pieces that references of models are made of: dense matrices, one snapshot and one node at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from strobe.graph import DynamicGraph, PerCell
from strobe.models import Model
from strobe.view import Carry, View, WindowData
from tests.support.graphs import PlainGraph

M = TypeVar("M", bound=Model)
Reference = Callable[[PlainGraph, list[Tensor]], list[Tensor]]
"""Outputs of every snapshot from the graph and the features of every snapshot."""


def adjacency(plain: PlainGraph, t: int) -> Tensor:
    """The GCN matrix of a snapshot, entry by entry: loops of weight 1 where a node has none, degrees of |weights|."""
    present = plain.present(t)
    at = {v: i for i, v in enumerate(present)}
    matrix, sizes = (torch.zeros(len(present), len(present), dtype=torch.float64) for _ in range(2))
    for v, u, w in plain.arcs(t):
        matrix[at[v], at[u]] += w if plain.weighted else 1.0
        sizes[at[v], at[u]] += abs(w) if plain.weighted else 1.0
    looped = {v for v, u, _ in plain.arcs(t) if u == v}
    for v in present:
        if v not in looped:
            matrix[at[v], at[v]] = sizes[at[v], at[v]] = 1.0
    degree = sizes.sum(1)
    root = torch.where(degree > 0, degree, 1.0) ** -0.5 * (degree > 0)
    return root[:, None] * matrix * root[None]


def chebyshev(plain: PlainGraph, t: int, x: Tensor, size: int) -> list[Tensor]:
    """T_0(L~) x … T_(size - 1)(L~) x by their recurrence, with L~ = 2 L / 2 - I and the Laplacian L entry by entry:
    loops do not count, degrees are those of outgoing arcs."""
    present = plain.present(t)
    arcs = [(v, u, w if plain.weighted else 1.0) for v, u, w in plain.arcs(t) if v != u]
    degree = {u: sum(abs(w) for _, source, w in arcs if source == u) for u in present}
    laplacian = torch.eye(len(present), dtype=torch.float64)
    for v, u, w in arcs:
        if degree[v] and degree[u]:
            laplacian[present.index(v), present.index(u)] -= w / (degree[v] * degree[u]) ** 0.5
    scaled = 2 * laplacian / 2 - torch.eye(len(present), dtype=torch.float64)
    terms = [x, scaled @ x]
    while len(terms) < size:
        terms.append(2 * scaled @ terms[-1] - terms[-2])
    return terms[:size]


def with_features(plain: PlainGraph, width: int = 3) -> tuple[DynamicGraph, list[Tensor]]:
    """The built graph with random features per cell, and those of every snapshot."""
    rng = np.random.default_rng(5)
    rows = [rng.normal(size=(len(shot.nodes), width)) for shot in plain.snapshots]
    values = np.concatenate([*rows, np.empty((0, width))])
    return plain.build().with_features(PerCell(values)), [torch.from_numpy(part) for part in rows]


class PerNode:
    """A state row per node, zeros for a node never seen: what a recurrent cell goes on from."""

    def __init__(self, width: int) -> None:
        self._rows: dict[int, Tensor] = {}
        self._width = width

    def of(self, nodes: Sequence[int]) -> Tensor:
        zeros = torch.zeros(self._width, dtype=torch.float64)
        rows = [self._rows.get(v, zeros) for v in nodes]
        return torch.stack(rows) if rows else torch.zeros(0, self._width, dtype=torch.float64)

    def put(self, nodes: Sequence[int], rows: Tensor) -> None:
        self._rows.update(zip(nodes, rows, strict=True))


def torch_gru(x: Tensor, h: Tensor, cell: nn.GRUCell) -> Tensor:
    """One step of torch's GRU from its documented formulas."""
    gx, gh = x @ cell.weight_ih.T + cell.bias_ih, h @ cell.weight_hh.T + cell.bias_hh
    (xr, xz, xn), (hr, hz, hn) = gx.chunk(3, 1), gh.chunk(3, 1)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    return (1 - z) * torch.tanh(xn + r * hn) + z * h


def outputs(model: Model, graph: DynamicGraph, *cuts: int) -> Tensor:
    """What the model says about all cells, in windows cut at these snapshots, each going on from the one before."""
    carry: Carry | None = None
    said = []
    for start, stop in zip((0, *cuts), (*cuts, len(graph)), strict=True):
        view = View(WindowData(graph[start:stop], dtype=torch.float64), carry)
        said.append(model(view))
        carry = view.carry
    return torch.cat(said)


def gradients(model: nn.Module, out: Tensor) -> dict[str, Tensor]:
    """Gradients by name of a loss that weighs every number of the output differently; zeros where there are none."""
    weights = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).reshape(out.shape)
    names, parameters = zip(*model.named_parameters(), strict=True)
    if not out.requires_grad:
        return {name: torch.zeros_like(value) for name, value in zip(names, parameters, strict=True)}
    found = torch.autograd.grad((out * weights).sum(), parameters, allow_unused=True, materialize_grads=True)
    return dict(zip(names, found, strict=True))


def randomised(model: M) -> M:
    """The model in double precision with every parameter random, biases too."""
    model = model.double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.5)
    return model


def assert_equals_reference(model: Model, reference: Reference, plain: PlainGraph, *cuts: int, width: int = 3) -> None:
    """Outputs and gradients of the model agree with the reference's, in one window or cut into several."""
    graph, x = with_features(plain, width)
    expected = torch.cat([*reference(plain, x), torch.zeros(0, model.width, dtype=torch.float64)])
    out = outputs(model, graph, *cuts)
    assert out.shape == expected.shape
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(gradients(model, out), gradients(model, expected), rtol=1e-9, atol=1e-9)
