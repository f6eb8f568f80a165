"""Input features of models, for all tasks."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

from strobe.errors import InputError
from strobe.format import pluralize
from strobe.graph import Degrees, DynamicGraph, FeatureProvider, Standardized
from strobe.graph.features import Concatenated, RandomSignature
from strobe.tasks.saved_state import read_numbers
from strobe.tasks.split import Split


def with_inputs(graph: DynamicGraph, split: Split, state: dict[str, Any] | None = None) -> DynamicGraph:
    """The graph with standardized features: its own, or log(1 + degree) if it has none.

    Mean and standard deviation come from training snapshots, or from ``state``. Features that are standardized already,
    and random signatures, do not change.

    Raises:
        InputError: the training snapshots have no nodes, or ``state`` has another number of features.
    """
    provider: FeatureProvider = graph.features if graph.features is not None else Degrees(log=True)
    if state is not None:
        trained_on = len(read_numbers(state, "mean"))
        if provider.shape and provider.shape[0] != trained_on:
            have, trained = (pluralize(number, "feature") for number in (provider.shape[0], trained_on))
            raise InputError(f"nodes of this graph have {have}, the model was trained on {trained}")
        mean, std = (read_numbers(state, name, provider.shape[0]).tolist() for name in ("mean", "std"))
        return graph.with_features(_scale_provider(provider, mean, std))
    train = graph[split.train.start : split.train.stop]
    if train.num_cells == 0:
        raise InputError("the training snapshots have no nodes")
    return graph.with_features(_fit_provider(provider, train))


def inputs_state(graph: DynamicGraph) -> dict[str, Any]:
    """The mean and standard deviation of each column that ``with_inputs`` fitted, for JSON."""
    assert graph.features is not None
    mean, std = _moments(graph.features)
    return {"mean": mean, "std": std}


def _fit_provider(provider: FeatureProvider, train: DynamicGraph) -> FeatureProvider:
    if isinstance(provider, Standardized | RandomSignature):
        return provider
    if isinstance(provider, Concatenated):
        return Concatenated(tuple(_fit_provider(part, train) for part in provider.parts))
    return Standardized.fit(provider, train)


def _scale_provider(provider: FeatureProvider, mean: list[float], std: list[float]) -> FeatureProvider:
    if isinstance(provider, Standardized | RandomSignature):
        return provider
    if isinstance(provider, Concatenated):
        cuts = pairwise(accumulate((part.shape[0] for part in provider.parts), initial=0))
        return Concatenated(
            tuple(_scale_provider(part, mean[a:b], std[a:b]) for part, (a, b) in zip(provider.parts, cuts, strict=True))
        )
    return Standardized(provider, tuple(mean), tuple(std))


def _moments(provider: FeatureProvider) -> tuple[list[float], list[float]]:
    """The mean and standard deviation of each column."""
    if isinstance(provider, Concatenated):
        parts = [_moments(part) for part in provider.parts]
        return [v for mean, _ in parts for v in mean], [v for _, std in parts for v in std]
    if isinstance(provider, RandomSignature):
        return [0.0] * provider.width, [1.0] * provider.width
    assert isinstance(provider, Standardized)
    return list(provider.mean), list(provider.std)
