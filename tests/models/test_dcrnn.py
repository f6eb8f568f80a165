from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from strobe.models.dcrnn import DCRNN
from strobe.view import View, WindowData
from tests.support.graphs import PlainGraph
from tests.support.model_cases import CHANGING, INPUTS, assert_same_with_gradients, run, with_inputs


def walks(plain: PlainGraph, t: int) -> tuple[Tensor, Tensor]:
    """D_O^-1 W and D_I^-1 W^T over all nodes; W_ij is the weight of the edge from i to j, degrees sum its size."""
    n = plain.num_nodes
    w, size = torch.zeros(n, n, dtype=torch.float64), torch.zeros(n, n, dtype=torch.float64)
    for destination, source, weight in plain.arcs(t):
        w[source, destination] += weight
        size[source, destination] += abs(weight)
    leaving, reaching = size.sum(1), size.sum(0)
    return (
        torch.where(leaving > 0, 1 / leaving, 0.0).diag() @ w,
        torch.where(reaching > 0, 1 / reaching, 0.0).diag() @ w.t(),
    )


def convolved(x: Tensor, forward: Tensor, backward: Tensor, weights: list[Tensor], hops: int) -> Tensor:
    """Σ_k of the powers of both walks, each with a weight of its own, as the paper writes it."""
    out = x @ weights[0].t()
    for k in range(1, hops + 1):
        out = out + torch.linalg.matrix_power(forward, k) @ x @ weights[k].t()
        out = out + torch.linalg.matrix_power(backward, k) @ x @ weights[hops + k].t()
    return out


def reference(model: DCRNN, plain: PlainGraph) -> Tensor:
    """The equations of the paper, snapshot by snapshot over dense matrices of all nodes; absent nodes keep still."""
    hidden, hops = model.width, model.hops
    graph = with_inputs(plain.build())
    h = torch.zeros(plain.num_nodes, hidden, dtype=torch.float64)
    outputs = []
    of_x, of_h = model.of_input.split(INPUTS, 1), model.of_state.split(hidden, 1)
    weights = [torch.cat(pair, 1) for pair in zip(of_x, of_h, strict=True)]  # over [x, h]
    r_weights, u_weights, c_weights = zip(*(weight.chunk(3) for weight in weights), strict=True)
    r_bias, u_bias, c_bias = model.bias.chunk(3)
    for t, snapshot in enumerate(graph):
        assert snapshot.x is not None
        here = torch.tensor(plain.present(t), dtype=torch.int64)
        x = torch.zeros(plain.num_nodes, INPUTS, dtype=torch.float64)
        x[here] = torch.tensor(snapshot.x, dtype=torch.float64)
        forward, backward = walks(plain, t)
        both = torch.cat([x, h], 1)
        r = torch.sigmoid(convolved(both, forward, backward, list(r_weights), hops) + r_bias)
        u = torch.sigmoid(convolved(both, forward, backward, list(u_weights), hops) + u_bias)
        again = torch.cat([x, r * h], 1)
        c = torch.tanh(convolved(again, forward, backward, list(c_weights), hops) + c_bias)
        new = u * h + (1 - u) * c
        outputs.append(new[here])
        h = h.index_copy(0, here, new[here])
    return torch.cat(outputs)


WEIGHTS: dict[str, Callable[[int, int, float], float]] = {
    "weighted": lambda u, v, w: w,
    "unit": lambda u, v, w: 1.0,
    "signed": lambda u, v, w: -w if (u + v) % 2 else w,
}


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize(("hops", "weights"), [(1, "weighted"), (2, "unit"), (2, "signed"), (3, "weighted")])
def test_outputs_and_gradients_equal_the_papers_equations(hops: int, directed: bool, weights: str) -> None:
    torch.manual_seed(0)
    weigh = WEIGHTS[weights]
    shots = [replace(shot, edges=[(u, v, weigh(u, v, w)) for u, v, w in shot.edges]) for shot in CHANGING.snapshots]
    plain = replace(CHANGING, directed=directed, weighted=weights != "unit", snapshots=shots)
    model = DCRNN(INPUTS, 4, hops=hops).double()
    torch.nn.init.normal_(model.bias)  # each part of the bias must reach its gate
    out, _ = run(model, with_inputs(plain.build()))
    assert_same_with_gradients(out, reference(model, plain), model)


def test_diffusions_of_inputs_are_cached() -> None:
    model = DCRNN(INPUTS, 4, hops=2)
    cells = WindowData(with_inputs(CHANGING.build()))
    model(View(cells))
    diffused = dict(cells._aggregates)
    model(View(cells))
    assert set(diffused) == {(), ("mean_out",), ("mean_out", "mean_out"), ("mean",), ("mean", "mean")}
    assert all(cells._aggregates[key] is kept for key, kept in diffused.items())
    assert not cells._matrices, "a window that only diffuses its inputs needs no matrix of its own"


def test_undirected_graphs_have_one_walk() -> None:
    model = DCRNN(INPUTS, 4, hops=2)
    cells = WindowData(with_inputs(replace(CHANGING, directed=False).build()))
    model(View(cells))
    assert set(cells._aggregates) == {(), ("mean_out",), ("mean_out", "mean_out")}
    assert {norm for alone in cells.single for norm in alone._matrices} == {"mean_out"}
