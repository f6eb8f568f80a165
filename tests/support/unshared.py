"""Graphs whose snapshots share their structure, stored once per snapshot instead: the reference for sharing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from strobe.graph import DynamicGraph
from strobe.graph.storage import ArrayStorage


def without_sharing(graph: DynamicGraph) -> DynamicGraph:
    """The same graph, all of whose snapshots have arrays of their own."""
    storage = graph.storage
    assert isinstance(storage, ArrayStorage)
    everything = range(len(storage.times))
    rows = [storage.csr(t) for t in everything]

    def joined(parts: list[Any], like: Any) -> Any:
        return None if like is None else np.concatenate([like[:0], *parts])

    apart = replace(
        storage,
        structure=None,
        node=joined([storage.nodes(t) for t in everything], storage.node),
        row_ptr=joined([row_ptr for row_ptr, _, _ in rows], storage.row_ptr),
        col=joined([col for _, col, _ in rows], storage.col),
        weight=joined([weight for _, _, weight in rows], storage.weight),
    )
    return replace(graph, storage=apart)
