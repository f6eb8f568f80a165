"""One definition of what models read, for all tasks."""

from __future__ import annotations

from typing import Any

from strobe.errors import InputError
from strobe.graph import Carrier, Degrees, DynamicGraph, Standardised
from strobe.tasks.split import Split


def with_inputs(graph: DynamicGraph, split: Split, state: dict[str, Any] | None = None) -> DynamicGraph:
    """The graph with the features models read: its own, or log(1 + degree) where it has none, standardised.

    Mean and deviation come from training snapshots alone, or from ``state``.
    """
    carrier: Carrier = graph.features if graph.features is not None else Degrees(log=True)
    if isinstance(carrier, Standardised):
        return graph
    if state is not None:
        return graph.with_features(Standardised(carrier, tuple(state["mean"]), tuple(state["std"])))
    train = graph[split.train.start : split.train.stop]
    if train.num_cells == 0:
        raise InputError("the training snapshots have no nodes")
    return graph.with_features(Standardised.fit(carrier, train))


def inputs_state(graph: DynamicGraph) -> dict[str, Any]:
    """What ``with_inputs`` fitted, for JSON."""
    carrier = graph.features
    assert isinstance(carrier, Standardised)
    return {"mean": list(carrier.mean), "std": list(carrier.std)}
