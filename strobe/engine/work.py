"""What a model sends and costs, for placements that ask: found out by watching it."""

from __future__ import annotations

import torch

from strobe.engine.choice import ModelChoice
from strobe.engine.trace import Call, watch
from strobe.exchange import Exchange
from strobe.graph import DynamicGraph
from strobe.placement.work import Loads, Work, counted

WATCHED = 2
"""Snapshots over which a model is watched."""


def work_of(
    choice: ModelChoice, graph: DynamicGraph, exchange: Exchange, dtype: torch.dtype, loads: Loads = counted
) -> Work:
    """The bytes of a pass forward, by what a placement cuts. Features do not count: ranks find them in the graph."""
    assert graph.features is not None  # every task sees to that
    some = graph[:WATCHED]
    with torch.random.fork_rng():
        calls = watch(choice.make(graph.features.shape[0]), some)
    along_arcs = sum(_often(call, some) * call.columns for call in calls if call.what == "pull" and not call.is_input)
    recalled = sum(_often(call, some) * call.columns for call in calls if call.what == "recall")
    moved = [
        exchange.time.fitting(call).travels(call.columns, call.out_columns, call.state_columns)  # type: ignore[arg-type]
        for call in calls
        if call.what == "over_time"
    ]
    size = dtype.itemsize
    return Work(
        arc_bytes=size * along_arcs,
        state_bytes=size * (recalled + sum(cut for cut, _ in moved)),
        cell_bytes=size * sum(away for _, away in moved),
        loads=loads,
        hops=sum(call.what == "pull" and call.snapshot in (None, 0) for call in calls),
    )


def _often(call: Call, graph: DynamicGraph) -> float:
    """Uses of one snapshot at a time are seen once for each."""
    return 1.0 if call.snapshot is None else 1 / len(graph)
