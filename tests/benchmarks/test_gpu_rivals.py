"""Both sides of benchmarks/gpu.py compute the same: with the same weights, the same outputs and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.gpu_rivals import RIVALS
from benchmarks.peer_graph import edges
from strobe.graph import Degrees, from_edges
from strobe.models import make_model
from strobe.view import View, WindowData

NODES, SNAPSHOTS, HIDDEN = 60, 5, 8
Pairs = list[tuple[Any, Any]]
"""Parameters of ours and of the rival's that are the same, or modules whose parameters have the same names."""


def _tgcn(ours: Any, rival: Any) -> Pairs:
    update, reset, candidate = range(3)
    order = zip((reset, update, candidate), ours.gates, strict=True)
    return [
        pair
        for at, gate in order
        for pair in (
            (gate.weights[0], rival.convolutions[at].lin.weight),
            (gate.biases[0], rival.convolutions[at].bias),
            (gate.linear, rival.linears[at]),
        )
    ]


def _mpnn_lstm(ours: Any, rival: Any) -> Pairs:
    pairs: Pairs = [(mine.module, other) for mine, other in zip(ours.recurrent, rival.recurrent, strict=True)]
    for mine, other in zip(ours.convolutions, rival.convolutions, strict=True):
        pairs += [(mine.weight, other.lin.weight), (mine.bias, other.bias)]
    for mine, other in zip(ours.norms, rival.norms, strict=True):
        pairs += [(mine.weight, other.weight), (mine.bias, other.bias)]
    return pairs


def _gat(ours: Any, rival: Any) -> Pairs:
    return [
        (ours.weight, rival.lin.weight),
        (ours.a_in, rival.att_dst),
        (ours.a_out, rival.att_src),
        (ours.bias, rival.bias),
    ]


def _gat_lstm(ours: Any, rival: Any) -> Pairs:
    return [*_gat(ours.attentions[0], rival.attention), (ours.time.module, rival.recurrent)]


def _evolvegcn_o(ours: Any, rival: Any) -> Pairs:
    (layer,) = ours.layers
    return [(ours.lift, rival.lift), (layer.weight, rival.weight), (layer.cell, rival.cell)]


def _dysat(ours: Any, rival: Any) -> Pairs:
    (block,) = ours.blocks
    time = block.attention
    maps = [(time.w_q, rival.w_q.weight), (time.w_k, rival.w_k.weight), (time.w_v, rival.w_v.weight)]
    inner = [*maps, (time.positions, rival.positions), (block.feed_forward, rival.feed_forward)]
    return [*_gat(ours.attentions[0], rival.attention), *inner]


SAME: dict[str, Callable[[Any, Any], Pairs]] = {
    "tgcn": _tgcn,
    "mpnn-lstm": _mpnn_lstm,
    "gat-lstm": _gat_lstm,
    "evolvegcn-o": _evolvegcn_o,
    "dysat": _dysat,
}


def _parameters(pairs: Pairs) -> list[tuple[Tensor, Tensor]]:
    found: list[tuple[Tensor, Tensor]] = []
    for mine, other in pairs:
        if isinstance(mine, nn.Module):
            named = dict(other.named_parameters())
            found += [(parameter, named[name]) for name, parameter in mine.named_parameters()]
        else:
            found.append((mine, other))
    return found


@pytest.mark.parametrize("name", RIVALS)
def test_a_rival_computes_what_our_model_does(name: str) -> None:
    torch.manual_seed(0)
    arcs = edges(NODES, SNAPSHOTS, 150)[:SNAPSHOTS]
    cells = WindowData(from_edges(arcs, num_nodes=NODES, x=Degrees(log=True)), dtype=torch.float64)
    ours = make_model(name, 2, hidden=HIDDEN).double()
    rival = RIVALS[name](2, HIDDEN).double()
    same = _parameters(SAME[name](ours, rival))
    assert sum(mine.numel() for mine, _ in same) == sum(each.numel() for each in ours.parameters())
    assert sum(other.numel() for _, other in same) == sum(each.numel() for each in rival.parameters())
    with torch.no_grad():
        for mine, other in same:
            other.copy_(mine.normal_(std=0.5).view_as(other))
    out = ours(View(cells))
    theirs = rival(cells.x.view(SNAPSHOTS, NODES, 2), [torch.from_numpy(each) for each in arcs]).flatten(0, 1)
    torch.testing.assert_close(out, theirs, rtol=1e-9, atol=1e-9)
    towards = torch.randn_like(out)
    given = torch.autograd.grad(out, [mine for mine, _ in same], towards)
    found = torch.autograd.grad(theirs, [other for _, other in same], towards)
    for mine, other in zip(given, found, strict=True):
        torch.testing.assert_close(mine.view_as(other), other, rtol=1e-9, atol=1e-9)
