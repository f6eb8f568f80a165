"""Every model on several ranks gives what it gives on one: outputs of all cells, gradients of all parameters."""

from __future__ import annotations

from copy import deepcopy
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from strobe.comm import Comm
from strobe.exchange import Exchange, Halo, Relay, Shuffle, Stale, StaleTime
from strobe.exchange import legs as legs_module
from strobe.graph import DynamicGraph
from strobe.models import make_model
from strobe.placement import Placed
from strobe.view import Carry, Cells, Owners, Share, View
from tests.models.cases import CHANGING, INPUTS, run, with_inputs
from tests.ranks import as_threads

MODELS: dict[str, dict[str, Any]] = {
    "tgcn": {},
    "dcrnn": {},
    "evolvegcn-o": {"layers": 2},
    "evolvegcn-h": {"layers": 2},
    "wd-gcn": {"layers": 2},
    "gat-lstm": {"heads": 2},
    "dysat": {"heads": 2},
    "mpnn-lstm": {},
    "sage": {},
}


def random_cells(graph: DynamicGraph, num_ranks: int, seed: int) -> Placed:
    of_cell = np.random.default_rng(seed).integers(0, num_ranks, graph.num_cells)
    return Placed.by_cell(num_ranks, of_cell, graph).with_sequences(graph)


def random_nodes(graph: DynamicGraph, num_ranks: int, seed: int) -> Placed:
    return Placed.by_node(num_ranks, np.random.default_rng(seed).integers(0, num_ranks, graph.num_nodes), len(graph))


def blocks(graph: DynamicGraph, num_ranks: int, seed: int) -> Placed:
    del seed
    of_snapshot = np.arange(len(graph)) * num_ranks // max(len(graph), 1)
    return Placed.by_snapshot(num_ranks, of_snapshot, graph.num_nodes).with_sequences(graph)


def dealt(graph: DynamicGraph, num_ranks: int, seed: int) -> Placed:
    del seed
    return Placed.by_snapshot(num_ranks, np.arange(len(graph)) % num_ranks, graph.num_nodes).with_sequences(graph)


PLACED = {"cells": random_cells, "nodes": random_nodes, "blocks": blocks, "dealt": dealt}


def towards(number: int, width: int) -> Tensor:
    return torch.randn(number, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def alone(make: Any, graph: DynamicGraph, cuts: list[int]) -> tuple[Tensor, list[Tensor]]:
    model = make()
    outs: list[Tensor] = []
    carry: Carry | None = None
    for start, stop in pairwise(cuts):
        out, carry = run(model, graph[start:stop], carry)
        outs.append(out)
    whole = torch.cat(outs)
    (whole * towards(graph.num_cells, model.width)).sum().backward()
    return whole.detach(), [_grad(p) for p in model.parameters()]


def together(
    make: Any, graph: DynamicGraph, cuts: list[int], placed: Placed, exchange: Exchange
) -> tuple[Tensor, list[Tensor]]:
    """Every rank its share, windows with gradients between them; outputs put together again."""

    def work(comm: Comm) -> tuple[list[tuple[Tensor, Tensor]], list[Tensor]]:
        model = make()
        aim = towards(graph.num_cells, model.width)
        carry: Carry | None = None
        found = []
        loss = torch.zeros((), dtype=torch.float64)
        for start, stop in pairwise(cuts):
            owners = Owners(graph, placed, range(start, stop))
            home = np.full(graph.num_nodes, -1, np.int16)
            for t in range(start):
                home[graph[t].nodes] = placed.owners(graph, t)
            share = Share(comm, exchange, owners, home, torch.device("cpu"))
            view = View(Cells(graph[start:stop], share=share, dtype=torch.float64), carry)
            out = model(view)
            carry = view.carry
            at = torch.from_numpy(
                np.concatenate(
                    [np.empty(0, np.int64), *(own + graph.cell_ptr[start + t] for t, own in enumerate(share.own))]
                )
            )
            found.append((at, out.detach()))
            loss = loss + view.closed((out * aim[at]).sum())
        loss.backward()
        return found, [comm.sum(_grad(p), kind="gradients") for p in model.parameters()]

    results = as_threads(work, placed.num_ranks)
    whole = torch.full((graph.num_cells, results[0][0][0][1].shape[1]), torch.nan, dtype=torch.float64)
    for found, _ in results:
        for at, out in found:
            whole[at] = out
    return whole, results[0][1]


def _grad(parameter: nn.Parameter) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()


def maker(name: str) -> Any:
    torch.manual_seed(3)
    model = make_model(name, INPUTS, hidden=4, **MODELS[name]).double()
    return lambda: deepcopy(model)  # random numbers are one stream for all threads


@pytest.mark.parametrize("time", [Relay(groups=2), Shuffle()], ids=["relay", "shuffle"])
@pytest.mark.parametrize("place", PLACED)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_on_ranks_equals_it_on_one(name: str, place: str, time: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legs_module, "MIN_CELLS", 1)
    graph, make = with_inputs(CHANGING.build()), maker(name)
    whole, cut = [0, 6], [0, 2, 3, 6]
    for num_ranks in (2, 3, 4):
        cuts = cut if (num_ranks + isinstance(time, Relay)) % 2 else whole  # each exchange meets both
        out, grads = alone(make, graph, cuts)
        placed = PLACED[place](graph, num_ranks, num_ranks)
        got, got_grads = together(make, graph, cuts, placed, Exchange(structure=Halo(), time=time))
        torch.testing.assert_close(got, out, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(got_grads, grads, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("fresh", [Relay(groups=2), Shuffle()], ids=["relay", "shuffle"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_whose_rows_are_all_sent_equals_it_on_one_rank(
    name: str, fresh: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(legs_module, "MIN_CELLS", 1)
    graph, make = with_inputs(CHANGING.build()), maker(name)
    exchange = Exchange(structure=Stale(share=0), time=StaleTime(share=0, fresh=fresh))
    for cuts in ([0, 6], [0, 2, 3, 6]):
        out, grads = alone(make, graph, cuts)
        got, got_grads = together(make, graph, cuts, random_cells(graph, 4, 4), exchange)
        torch.testing.assert_close(got, out, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(got_grads, grads, rtol=1e-9, atol=1e-9)
