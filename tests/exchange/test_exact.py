"""Models on several ranks equal one rank: outputs of all cells, gradients of all parameters."""

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
from strobe.exchange.relay import legs as legs_module
from strobe.graph import DynamicGraph
from strobe.models import make_model
from strobe.placement import Partition
from strobe.view import Carry, LocalPartition, Owners, View, WindowData
from tests.support.model_cases import CHANGING, INPUTS, run, with_inputs
from tests.support.ranks import as_threads

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
    "roland": {},
    "gconv-gru": {},
    "gc-lstm": {},
    "gcn": {},
}


def random_cells(graph: DynamicGraph, num_ranks: int, seed: int) -> Partition:
    of_cell = np.random.default_rng(seed).integers(0, num_ranks, graph.num_cells)
    return Partition.by_cell(num_ranks, of_cell, graph).with_sequence_owner(graph)


def random_nodes(graph: DynamicGraph, num_ranks: int, seed: int) -> Partition:
    return Partition.by_node(num_ranks, np.random.default_rng(seed).integers(0, num_ranks, graph.num_nodes), len(graph))


def blocks(graph: DynamicGraph, num_ranks: int, seed: int) -> Partition:
    del seed
    of_snapshot = np.arange(len(graph)) * num_ranks // max(len(graph), 1)
    return Partition.by_snapshot(num_ranks, of_snapshot, graph.num_nodes).with_sequence_owner(graph)


def round_robin(graph: DynamicGraph, num_ranks: int, seed: int) -> Partition:
    del seed
    return Partition.by_snapshot(num_ranks, np.arange(len(graph)) % num_ranks, graph.num_nodes).with_sequence_owner(
        graph
    )


PLACED = {"cells": random_cells, "nodes": random_nodes, "blocks": blocks, "round robin": round_robin}


def output_grad(number: int, width: int) -> Tensor:
    return torch.randn(number, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def run_on_one_rank(make: Any, graph: DynamicGraph, cuts: list[int]) -> tuple[Tensor, list[Tensor]]:
    model = make()
    outs: list[Tensor] = []
    carry: Carry | None = None
    for start, stop in pairwise(cuts):
        out, carry = run(model, graph[start:stop], carry)
        outs.append(out)
    whole = torch.cat(outs)
    (whole * output_grad(graph.num_cells, model.width)).sum().backward()
    return whole.detach(), [_grad(p) for p in model.parameters()]


def run_on_ranks(
    make: Any, graph: DynamicGraph, cuts: list[int], partition: Partition, exchange: Exchange
) -> tuple[Tensor, list[Tensor]]:
    """Run every rank's partition, with gradients across windows, and merge the outputs."""

    def work(comm: Comm) -> tuple[list[tuple[Tensor, Tensor]], list[Tensor]]:
        model = make()
        d_out = output_grad(graph.num_cells, model.width)
        carry: Carry | None = None
        outputs = []
        loss = torch.zeros((), dtype=torch.float64)
        for start, stop in pairwise(cuts):
            owners = Owners(graph, partition, range(start, stop))
            home = np.full(graph.num_nodes, -1, np.int16)
            for t in range(start):
                home[graph[t].nodes] = partition.owners(graph, t)
            local = LocalPartition(comm, exchange, owners, home, torch.device("cpu"))
            view = View(WindowData(graph[start:stop], local_partition=local, dtype=torch.float64), carry)
            out = model(view)
            carry = view.carry
            at = torch.from_numpy(
                np.concatenate(
                    [np.empty(0, np.int64), *(own + graph.cell_ptr[start + t] for t, own in enumerate(local.own))]
                )
            )
            outputs.append((at, out.detach()))
            loss = loss + view.attach_exchanges((out * d_out[at]).sum())
        loss.backward()
        return outputs, [comm.all_reduce(_grad(p), kind="gradients") for p in model.parameters()]

    results = as_threads(work, partition.num_ranks)
    whole = torch.full((graph.num_cells, results[0][0][0][1].shape[1]), torch.nan, dtype=torch.float64)
    for outputs, _ in results:
        for at, out in outputs:
            whole[at] = out
    return whole, results[0][1]


def _grad(parameter: nn.Parameter) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()


def maker(name: str) -> Any:
    torch.manual_seed(3)
    model = make_model(name, INPUTS, hidden=4, **MODELS[name]).double()
    return lambda: deepcopy(model)  # threads local one random stream


@pytest.fixture
def groups_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legs_module, "MIN_CELLS", 1)


WHOLE, CUT = [0, 6], [0, 2, 3, 6]
RELAY, SHUFFLE = Relay(pipeline_groups=2), Shuffle()
CASES: list[tuple[int, Any, list[int]]] = [(2, RELAY, WHOLE), (3, SHUFFLE, CUT), (3, RELAY, CUT), (4, SHUFFLE, WHOLE)]
"""Ranks, time exchange and boundaries of windows."""


@pytest.mark.usefixtures("groups_of_any_size")
@pytest.mark.parametrize(("number", "name"), [*enumerate(MODELS)])
def test_relay_and_shuffle_equal_one_rank(number: int, name: str) -> None:
    """Every model meets every placement and every case, and every placement meets every case."""
    graph, make = with_inputs(CHANGING.build()), maker(name)
    expected = [run_on_one_rank(make, graph, cuts) for cuts in (WHOLE, CUT)]
    for place, make_partition in enumerate(PLACED.values()):
        num_ranks, time, cuts = CASES[(number + place) % len(CASES)]
        partition, exchange = make_partition(graph, num_ranks, num_ranks), Exchange(structure=Halo(), time=time)
        got = run_on_ranks(make, graph, cuts, partition, exchange)
        torch.testing.assert_close(got, expected[cuts == CUT], rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("groups_of_any_size")
@pytest.mark.parametrize(("number", "name"), [*enumerate(MODELS)])
def test_stale_at_threshold_0_equals_one_rank(number: int, name: str) -> None:
    graph, make = with_inputs(CHANGING.build()), maker(name)
    for inner, cuts in zip((RELAY, SHUFFLE), (WHOLE, CUT) if number % 2 else (CUT, WHOLE), strict=True):
        exchange = Exchange(structure=Stale(threshold=0), time=StaleTime(threshold=0, inner=inner))
        got = run_on_ranks(make, graph, cuts, random_cells(graph, 4, 4), exchange)
        torch.testing.assert_close(got, run_on_one_rank(make, graph, cuts), rtol=1e-9, atol=1e-9)
