"""Digest of all that a graph holds, as the key of results computed from it.

A saved graph is known by its metadata, which have a checksum of every array; opening it has compared them. A graph in
memory, or a view, is hashed: 0.5 s/GB of its arrays, where fitting link prediction to it takes 70 s/GB and METIS
15 s/GB.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from strobe.graph.arrays import Array
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import (
    Concatenated,
    Degrees,
    FeatureProvider,
    PerCell,
    RandomSignature,
    Standardized,
    Static,
    find_stored,
)
from strobe.graph.names import NodeNames
from strobe.graph.storage import ArrayStorage

MAX_HASHED_BYTES = 4 << 30
"""Larger graphs in memory are not hashed."""

_PROVIDERS = (Concatenated, Degrees, PerCell, RandomSignature, Standardized, Static)


def content_digest(graph: DynamicGraph) -> str | None:
    """Return a SHA-256 that differs between graphs that differ in anything: arrays, order of names, times, features,
    labels, info, or the part that a view shows.

    Returns:
        The digest; None if it cannot be known: for providers and storages of a user's own, growing graphs, and graphs
        in memory above ``MAX_HASHED_BYTES``.
    """
    if graph.digest is not None:
        return graph.digest
    arrays = _arrays(graph)
    if arrays is None or sum(array.nbytes for array in arrays.values()) > MAX_HASHED_BYTES:
        return None
    try:
        text = json.dumps([_describe(graph), {name: [str(a.dtype), a.shape] for name, a in arrays.items()}])
    except (TypeError, ValueError):  # info may be anything
        return None
    digest = hashlib.sha256(text.encode())
    for array in arrays.values():
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _arrays(graph: DynamicGraph) -> dict[str, Array] | None:
    """All arrays by name; None if the graph has parts whose contents are not known."""
    if type(graph) is not DynamicGraph or type(graph.storage) is not ArrayStorage:
        return None
    if not all(each is None or _is_known(each) for each in (graph.features, graph.labels)):
        return None
    if graph.names is not None and type(graph.names) is not NodeNames:
        return None
    named: dict[str, Array | None] = dict(graph.storage.arrays())
    named |= {} if graph.names is None else {f"names {name}": array for name, array in graph.names.arrays().items()}
    for what, provider in (("x", graph.features), ("y", graph.labels)):
        stored = find_stored(provider)
        named[what] = None if stored is None else stored.values
    named["subset"] = graph.node_subset
    return {name: array for name, array in sorted(named.items()) if array is not None}


def _is_known(provider: FeatureProvider) -> bool:
    """Whether the recipe of a provider and its stored array say all."""
    return type(provider) in _PROVIDERS and all(map(_is_known, _inner(provider)))


def _inner(provider: FeatureProvider) -> Iterator[FeatureProvider]:
    if isinstance(provider, Standardized):
        yield provider.inner
    if isinstance(provider, Concatenated):
        yield from provider.parts


def _describe(graph: DynamicGraph) -> dict[str, Any]:
    window = range(len(graph.storage.times)) if graph.window is None else graph.window
    return {
        "num_nodes": graph.num_nodes,
        "directed": graph.directed,
        "times": graph.storage.times,
        "window": [window.start, window.stop, window.step],
        "info": dict(graph.info),
        "features": None if graph.features is None else graph.features.recipe(),
        "labels": None if graph.labels is None else graph.labels.recipe(),
    }
