from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from strobe.errors import UnknownNameError
from strobe.models.sage import GraphSAGE
from strobe.models.structure import SAGE
from strobe.models.time import Attention, TemporalLinear
from tests.support.dense_models import assert_equals_reference, randomised
from tests.support.graphs import AWKWARD, PlainGraph
from tests.support.model_cases import CHANGING

History = list[tuple[int, Tensor]]


def dense_layer(layer: SAGE, plain: PlainGraph, t: int, x: Tensor) -> Tensor:
    """ReLU of one layer from the paper, node by node; the mean heeds weights where the graph has them."""
    present = plain.present(t)
    assert layer.bias is not None
    rows = [x.new_zeros(0, len(layer.w_self))]
    for v in present:
        read = [(u, w if plain.weighted else 1.0) for to, u, w in plain.arcs(t) if to == v]
        total = sum(abs(w) for _, w in read)
        mean = sum((w / total * x[present.index(u)] for u, w in read if total), torch.zeros_like(x[0]))
        rows.append(torch.relu(layer.w_self @ x[present.index(v)] + layer.w_neigh @ mean + layer.bias)[None])
    return torch.cat(rows)


def dense_time(time: TemporalLinear | Attention, history: History) -> Tensor:
    """The row of the last of a node's cells (t, h)."""
    now, last = history[-1]
    assert time.span is not None
    seen = [(now - t, h) for t, h in history if now - t < time.span]
    if isinstance(time, TemporalLinear):
        matrices = time.linear.weight.chunk(time.span, 1)
        return sum((matrices[back] @ h for back, h in seen), time.linear.bias)
    assert time.positions is not None
    inputs = [h + time.positions[back] for back, h in seen]
    heads = []
    for w_q, w_k, w_v in zip(*(w.chunk(time.heads) for w in (time.w_q, time.w_k, time.w_v)), strict=True):
        query = w_q @ (last + time.positions[0])
        weights = torch.stack([query @ (w_k @ h) / math.sqrt(len(query)) for h in inputs]).softmax(0)
        heads.append(weights @ torch.stack([w_v @ h for h in inputs]))
    return torch.cat(heads)


def reference(model: GraphSAGE, plain: PlainGraph, x: list[Tensor]) -> list[Tensor]:
    histories: dict[int, History] = {}
    outputs = []
    assert isinstance(model.time, TemporalLinear | Attention)
    for t, rows in enumerate(x):
        for layer in model.convolutions:
            assert isinstance(layer, SAGE)
            rows = dense_layer(layer, plain, t, rows)
        out = [rows.new_zeros(0, model.width)]
        for v, h in zip(plain.present(t), rows, strict=True):
            histories.setdefault(v, []).append((t, h))
            out.append(dense_time(model.time, histories[v])[None])
        outputs.append(torch.cat(out))
    return outputs


@pytest.mark.parametrize(
    "options",
    [{}, {"layers": 1, "span": 1}, {"layers": 3, "span": 2}, {"time": "attention"}, {"time": "attention", "heads": 2}],
)
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("cuts", [(), (2, 4)])
def test_outputs_and_gradients_equal_the_formulas(
    options: dict[str, Any], directed: bool, cuts: tuple[int, ...]
) -> None:
    model = GraphSAGE(3, 4, **options)
    randomised(model)
    plain = replace(CHANGING, directed=directed)
    assert_equals_reference(model, lambda plain, x: reference(model, plain, x), plain, *cuts)


@pytest.mark.parametrize("name", AWKWARD)
@pytest.mark.parametrize("time", ["linear", "attention"])
def test_outputs_and_gradients_on_awkward_graphs(name: str, time: Any) -> None:
    model = GraphSAGE(3, 2, time=time, span=2)  # narrower than the inputs: the second layer aggregates what it maps
    randomised(model)
    plain = replace(AWKWARD[name], node_x=None, derived=None)
    assert_equals_reference(model, lambda plain, x: reference(model, plain, x), plain)


def test_unknown_time_encoder_is_refused_with_the_nearest_name() -> None:
    wrong: Any = "linaer"
    with pytest.raises(UnknownNameError, match="did you mean 'linear'"):
        GraphSAGE(3, time=wrong)
