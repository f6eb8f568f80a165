"""One definition of what models read, for all tasks."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

from strobe.errors import InputError
from strobe.graph import Carrier, Degrees, DynamicGraph, Standardised
from strobe.graph.features import Beside, Signature
from strobe.numbers import number_of
from strobe.tasks.fitted import fitted_numbers
from strobe.tasks.split import Split


def with_inputs(graph: DynamicGraph, split: Split, state: dict[str, Any] | None = None) -> DynamicGraph:
    """The graph with the features models read: its own, or log(1 + degree) where it has none, standardised.

    Mean and deviation come from training snapshots alone, or from ``state``. What is standardised already stays as it
    is, and so do signatures, whose scale is part of what they are.
    """
    carrier: Carrier = graph.features if graph.features is not None else Degrees(log=True)
    if state is not None:
        trained_on = len(fitted_numbers(state, "mean"))
        if carrier.shape and carrier.shape[0] != trained_on:
            have, wanted = (number_of(number, "feature") for number in (carrier.shape[0], trained_on))
            raise InputError(f"nodes of this graph carry {have}, the model was trained on {wanted}")
        mean, std = (fitted_numbers(state, name, carrier.shape[0]).tolist() for name in ("mean", "std"))
        return graph.with_features(_scaled(carrier, mean, std))
    train = graph[split.train.start : split.train.stop]
    if train.num_cells == 0:
        raise InputError("the training snapshots have no nodes")
    return graph.with_features(_fitted(carrier, train))


def inputs_state(graph: DynamicGraph) -> dict[str, Any]:
    """What ``with_inputs`` fitted, for JSON: a mean and a deviation for each column."""
    assert graph.features is not None
    mean, std = _moments(graph.features)
    return {"mean": mean, "std": std}


def _fitted(carrier: Carrier, train: DynamicGraph) -> Carrier:
    if isinstance(carrier, Standardised | Signature):
        return carrier
    if isinstance(carrier, Beside):
        return Beside(tuple(_fitted(part, train) for part in carrier.parts))
    return Standardised.fit(carrier, train)


def _scaled(carrier: Carrier, mean: list[float], std: list[float]) -> Carrier:
    if isinstance(carrier, Standardised | Signature):
        return carrier
    if isinstance(carrier, Beside):
        cuts = pairwise(accumulate((part.shape[0] for part in carrier.parts), initial=0))
        return Beside(
            tuple(_scaled(part, mean[a:b], std[a:b]) for part, (a, b) in zip(carrier.parts, cuts, strict=True))
        )
    return Standardised(carrier, tuple(mean), tuple(std))


def _moments(carrier: Carrier) -> tuple[list[float], list[float]]:
    """The mean and deviation each column was scaled by."""
    if isinstance(carrier, Beside):
        parts = [_moments(part) for part in carrier.parts]
        return [v for mean, _ in parts for v in mean], [v for _, std in parts for v in std]
    if isinstance(carrier, Signature):
        return [0.0] * carrier.width, [1.0] * carrier.width
    assert isinstance(carrier, Standardised)
    return list(carrier.mean), list(carrier.std)
