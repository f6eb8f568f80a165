from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from strobe.models.gat_lstm import GATLSTM
from strobe.models.structure import GAT
from tests.support.dense_models import PerNode, assert_equals_reference, randomised
from tests.support.graphs import AWKWARD, PlainGraph
from tests.support.model_cases import CHANGING


def dense_gat(layer: GAT, plain: PlainGraph, t: int, x: Tensor) -> Tensor:
    """ELU of one layer from the paper, node by node: every edge read counts, each node's own loop once."""
    present = plain.present(t)
    assert layer.bias is not None
    rows = []
    for v in present:
        read = [u for to, u, _ in plain.arcs(t) if to == v and u != v] + [v]
        heads = []
        for weight, a_in, a_out in zip(layer.weight.chunk(layer.heads), layer.a_in, layer.a_out, strict=True):
            h = {u: weight @ x[present.index(u)] for u in read}
            scores = torch.stack([nn.functional.leaky_relu(a_in @ h[v] + a_out @ h[u], 0.2) for u in read])
            weights = scores.exp() / scores.exp().sum()
            heads.append(sum((w * h[u] for w, u in zip(weights, read, strict=True)), torch.zeros_like(h[v])))
        rows.append(nn.functional.elu(torch.cat(heads) + layer.bias))
    return torch.stack(rows) if rows else x.new_zeros(0, len(layer.weight))


def dense_lstm(module: nn.LSTM, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """One step, from the formulas of torch's documentation."""
    weights = dict(module.named_parameters())
    gates = x @ weights["weight_ih_l0"].T + weights["bias_ih_l0"] + h @ weights["weight_hh_l0"].T
    i, f, g, o = (gates + weights["bias_hh_l0"]).chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def reference(model: GATLSTM, plain: PlainGraph, x: list[Tensor]) -> list[Tensor]:
    h, c = PerNode(model.width), PerNode(model.width)
    outputs = []
    for t, rows in enumerate(x):
        for layer in model.attentions:
            assert isinstance(layer, GAT)
            rows = dense_gat(layer, plain, t, rows)
        assert isinstance(model.time.module, nn.LSTM)
        present = plain.present(t)
        out, cell = dense_lstm(model.time.module, rows, h.of(present), c.of(present))
        h.put(present, out)
        c.put(present, cell)
        outputs.append(out)
    return outputs


@pytest.mark.parametrize("options", [{}, {"layers": 2, "heads": 1}, {"heads": 2}])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("cuts", [(), (2, 4)])
def test_outputs_and_gradients_equal_the_formulas(
    options: dict[str, int], directed: bool, cuts: tuple[int, ...]
) -> None:
    model = GATLSTM(3, 4, **options)
    randomised(model)
    plain = replace(CHANGING, directed=directed)
    assert_equals_reference(model, lambda plain, x: reference(model, plain, x), plain, *cuts)


@pytest.mark.parametrize("name", AWKWARD)
def test_outputs_and_gradients_on_awkward_graphs(name: str) -> None:
    model = GATLSTM(3, 4, heads=2)
    randomised(model)
    plain = replace(AWKWARD[name], node_x=None, derived=None)
    assert_equals_reference(model, lambda plain, x: reference(model, plain, x), plain)
