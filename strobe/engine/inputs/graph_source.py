"""Where a run's graph comes from, and a fingerprint of it."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from strobe.errors import FormatError, OptionError, StrobeError, UnknownNameError
from strobe.graph import DynamicGraph, open_graph
from strobe.graph.digest import content_digest
from strobe.graph.disk.metadata import METADATA_FILE
from strobe.graph.progress import OnStage

GraphLike = DynamicGraph | str | PathLike[str]


@dataclass(frozen=True)
class GraphSource:
    """A graph, and in JSON where to find it again: a path, a data set's name, or nothing."""

    graph: DynamicGraph
    origin: dict[str, str] | None
    name: str

    @cached_property
    def digest(self) -> str | None:
        """Digest of the graph's contents; None if it cannot be known."""
        return content_digest(self.graph)


@dataclass(frozen=True)
class SavedGraph:
    """A graph that another process has saved for this one, and where it really comes from."""

    path: str
    origin: dict[str, str] | None
    name: str


def open_graph_source(
    given: GraphLike | SavedGraph, data_dir: str | PathLike[str] | None = None, on_stage: OnStage | None = None
) -> GraphSource:
    """A graph as it is, the one saved in a directory, or a data set by name; a directory goes first."""
    if isinstance(given, SavedGraph):
        return GraphSource(_open(given.path, on_stage), given.origin, given.name)
    if isinstance(given, DynamicGraph):
        if given.path is None or not _is_still_at(given.path, given):
            return GraphSource(given, None, "a graph in memory")
        return GraphSource(given, {"path": str(given.path)}, given.path.name)
    try:
        path = Path(given)
    except TypeError:
        what = type(given).__name__
        known = "a DynamicGraph, the directory of one or the name of a data set"
        raise OptionError(f"a graph is {known}, not a {what}") from None
    if path.exists():
        return GraphSource(_open(path, on_stage), {"path": str(path.resolve())}, path.resolve().name)
    from strobe.graph.datasets import find, load

    try:
        name = find(str(given)).name
    except UnknownNameError as error:
        near = get_close_matches(path.name, _graphs_next_to(path), n=1)
        hint = f" Did you mean {path.with_name(near[0])}?" if near else ""
        raise FormatError(f"there is no graph at {path}, and no data set of that name: {error}{hint}") from None
    origin = {"data_set": name} | ({} if data_dir is None else {"data_dir": str(Path(data_dir).resolve())})
    return GraphSource(load(name, data_dir=data_dir, on_stage=on_stage), origin, name)


def _open(path: str | PathLike[str], on_stage: OnStage | None) -> DynamicGraph:
    if on_stage is None:
        return open_graph(path)
    return open_graph(path, on_progress=lambda done, total: on_stage("checking the graph, MiB", done, total))


def _is_still_at(path: Path, graph: DynamicGraph) -> bool:
    """Whether a graph that was opened is there as it was: it may have grown, moved or been replaced since."""
    try:
        return fingerprint(open_graph(path)) == fingerprint(graph)
    except (StrobeError, OSError):
        return False


def _graphs_next_to(path: Path) -> list[str]:
    """The names of graphs where one was looked for."""
    folder = path.parent
    return [each.name for each in folder.iterdir() if (each / METADATA_FILE).is_file()] if folder.is_dir() else []


def reopen(origin: dict[str, str] | None, on_stage: OnStage | None = None) -> GraphSource:
    """The graph a run was trained on."""
    if origin is None:
        raise OptionError(
            "the run was trained on a graph in memory, or on a part or a changed copy of one that was opened, and "
            "cannot find it again: give that graph (graph, --graph), saved with graph.save(DIR) where a path is needed"
        )
    if "data_set" in origin:
        return open_graph_source(origin["data_set"], origin.get("data_dir"), on_stage)
    if not os.path.exists(origin["path"]):  # noqa: PTH110 (Path.exists raises if a name is too long)
        raise FormatError(f"the run's graph is no longer at {origin['path']}: say where it is")
    return open_graph_source(origin["path"], on_stage=on_stage)


def fingerprint(graph: DynamicGraph) -> dict[str, Any]:
    """Counts, and a checksum over the counts of every snapshot and over three whole snapshots."""
    checksum = zlib.crc32(np.ascontiguousarray(graph.cell_ptr).tobytes())
    for t in sorted({0, len(graph) // 2, len(graph) - 1}) if len(graph) else []:
        shot = graph[t]
        for array in (shot.nodes, shot.row_ptr, shot.col, shot.weight, shot.x, shot.y):
            if array is not None:
                checksum = zlib.crc32(np.ascontiguousarray(array).tobytes(), checksum)
    return {
        "nodes": graph.num_nodes,
        "snapshots": len(graph),
        "cells": graph.num_cells,
        "edges": graph.num_edges,
        "directed": graph.directed,
        "weighted": graph.weighted,
        "features": None if graph.features is None else list(graph.features.shape),
        "labels": None if graph.labels is None else list(graph.labels.shape),
        "checksum": checksum,
    }
