"""Bytes sent and costs of a model, from a trace of its view calls."""

from __future__ import annotations

import torch

from strobe.engine.inputs.model_choice import ModelChoice
from strobe.engine.trace import ViewCall, trace_view_calls
from strobe.exchange import Exchange
from strobe.graph import DynamicGraph
from strobe.placement.model_costs import LoadModel, ModelCosts, count_load

TRACED = 2
"""Snapshots over which a model is watched."""


def measure_model_costs(
    choice: ModelChoice, graph: DynamicGraph, exchange: Exchange, dtype: torch.dtype, loads: LoadModel = count_load
) -> ModelCosts:
    """The bytes of a pass forward, by what a placement cuts. Features do not count: ranks find them in the graph."""
    assert graph.features is not None  # every task sees to that
    some = graph[:TRACED]
    with torch.random.fork_rng():
        calls = trace_view_calls(choice.make(graph.features.shape[0]), some)
    along_arcs = sum(
        _calls_per_pass(call, some) * call.columns for call in calls if call.what == "pull" and not call.is_input
    )
    gathered = sum(_calls_per_pass(call, some) * call.columns for call in calls if call.what == "gather_state")
    moved = [exchange.time.for_encoder(call).columns_sent(call) for call in calls if call.what == "over_time"]
    size = dtype.itemsize
    return ModelCosts(
        arc_bytes=size * along_arcs,
        state_bytes=size * (gathered + sum(cut for cut, _ in moved)),
        cell_bytes=size * sum(away for _, away in moved),
        load_model=loads,
        hops=sum(call.what == "pull" and call.snapshot in (None, 0) for call in calls),
    )


def _calls_per_pass(call: ViewCall, graph: DynamicGraph) -> float:
    """Uses of one snapshot at a time are seen once for each."""
    return 1.0 if call.snapshot is None else 1 / len(graph)
