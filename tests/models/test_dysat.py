from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from strobe.models.dysat import DySAT, TemporalBlock
from strobe.models.structure import GAT
from tests.models.test_gat_lstm import dense_gat
from tests.support.dense_models import assert_equals_reference, randomised
from tests.support.graphs import AWKWARD, PlainGraph
from tests.support.model_cases import CHANGING


def dense_block(block: TemporalBlock, history: list[tuple[int, Tensor]]) -> Tensor:
    """The block's row of the last of a node's cells (t, h), positions numbered from the end."""
    attention = block.attention
    now = history[-1][0]
    if attention.span is not None:
        history = [(t, h) for t, h in history if now - t < attention.span]
    inputs = torch.stack([h for _, h in history])
    if attention.positions is not None:
        last = len(attention.positions) - 1
        inputs = inputs + torch.stack([attention.positions[min(now - t, last)] for t, _ in history])
    q, k, v = (inputs @ weight.T for weight in (attention.w_q, attention.w_k, attention.w_v))
    heads = []
    for query, key, value in zip(*(part.chunk(attention.heads, 1) for part in (q, k, v)), strict=True):
        scores = query @ key.T / math.sqrt(query.shape[1])
        mask = torch.full_like(scores, -math.inf).triu(1)
        heads.append(torch.softmax(scores + mask, 1) @ value)
    y = torch.cat(heads, 1)
    y = y + torch.relu(y @ block.feed_forward.weight.T + block.feed_forward.bias)
    return (y + inputs)[-1]


def reference(model: DySAT, plain: PlainGraph, x: list[Tensor]) -> list[Tensor]:
    rows = list(x)
    for layer in model.attentions:
        assert isinstance(layer, GAT)
        rows = [dense_gat(layer, plain, t, h) for t, h in enumerate(rows)]
    for block in model.blocks:
        assert isinstance(block, TemporalBlock)
        histories: dict[int, list[tuple[int, Tensor]]] = {}
        encoded = []
        for t, here in enumerate(rows):
            out = [here[:0]]
            for v, h in zip(plain.present(t), here, strict=True):
                histories.setdefault(v, []).append((t, h))
                out.append(dense_block(block, histories[v])[None])
            encoded.append(torch.cat(out))
        rows = encoded
    return rows


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"layers": 2, "time_layers": 2, "heads": 2},
        {"span": 2, "heads": 1},
        {"positions": 2, "heads": 2},
        {"positions": 0},
    ],
)
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("cuts", [(), (2, 4)])
def test_outputs_and_gradients_equal_the_formulas(
    options: dict[str, Any], directed: bool, cuts: tuple[int, ...]
) -> None:
    model = DySAT(3, 4, **options)
    randomised(model)
    plain = replace(CHANGING, directed=directed)
    assert_equals_reference(model, lambda plain, x: reference(model, plain, x), plain, *cuts)


@pytest.mark.parametrize("name", AWKWARD)
def test_outputs_and_gradients_on_awkward_graphs(name: str) -> None:
    model = DySAT(3, 4, heads=2, positions=2)
    randomised(model)
    plain = replace(AWKWARD[name], node_x=None, derived=None)
    assert_equals_reference(model, lambda plain, x: reference(model, plain, x), plain)
