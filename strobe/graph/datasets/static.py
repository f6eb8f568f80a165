"""Static graphs with features and labels: what simulated dynamic graphs are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from strobe.graph.arrays import Array
from strobe.ops.csr import IntArray

_PARTS = ("train", "val", "test")


@dataclass(frozen=True, eq=False, kw_only=True)
class StaticGraph:
    """Edges between nodes 0..N-1; an undirected edge comes once. Features are [N, F], labels [N] (-1: none)."""

    num_nodes: int
    src: IntArray
    dst: IntArray
    directed: bool
    features: Array | None = None
    labels: Array | None = None
    info: Mapping[str, Any] = field(default_factory=dict)


def planetoid(path: Path) -> StaticGraph:
    """Cora, CiteSeer or Pubmed from an NPZ with edges, labels, the standard split, and features as parts of a CSR."""
    with np.load(path) as file:
        edges = file["edges"]
        split = {part: file[f"{part}_idx"].tolist() for part in _PARTS}
        return StaticGraph(
            num_nodes=int(file["num_nodes"]),
            src=edges[:, 0],
            dst=edges[:, 1],
            directed=False,
            features=dense_features(file),
            labels=file["labels"].astype(np.int64),
            info={"split": split},
        )


def dense_features(file: Mapping[str, Any]) -> Array:
    """Features kept as x_data, x_indices, x_indptr, x_shape, as one dense float32 array."""
    parts = (file["x_data"], file["x_indices"], file["x_indptr"])
    dense: Array = sp.csr_array(parts, shape=tuple(file["x_shape"])).toarray()
    return dense.astype(np.float32, copy=False)


def reddit(data: Path, graph: Path) -> StaticGraph:
    """Reddit posts as DGL publishes them: reddit_data.npz (feature, label, node_types) and a SciPy matrix.

    The matrix lists both directions; one is kept. Memory: about 4 GB.
    """
    matrix = sp.load_npz(graph).tocoo()
    once = matrix.row < matrix.col
    with np.load(data) as file:
        kinds = np.bincount(file["node_types"], minlength=4)
        return StaticGraph(
            num_nodes=int(matrix.shape[0]),
            src=matrix.row[once],
            dst=matrix.col[once],
            directed=False,
            features=file["feature"].astype(np.float32),
            labels=file["label"].astype(np.int64),
            info={"split_sizes": {part: int(kinds[k]) for k, part in enumerate(_PARTS, 1)}},
        )
