"""The normalisations as formulas over dense matrices: slow, obvious, and sharing no code with Strobe's."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from strobe.ops.sparse.normalize import Norm
from tests.support.graphs import PlainGraph

Dense = npt.NDArray[np.float64]
Arc = tuple[int, int, float]
"""(row, column, weight): the row reads the column."""


def normalised(norm: Norm, rows: int, arcs: Iterable[Arc]) -> Dense:
    """The dense matrix of cells and arcs; parallel arcs add up."""
    arcs = list(arcs)
    if norm == "loops":
        arcs = [(i, j, 1.0) for i, j, _ in arcs if i != j] + [(i, i, 1.0) for i in range(rows)]
    if norm == "gcn":
        looped = {i for i, j, _ in arcs if i == j}
        arcs += [(i, i, 1.0) for i in range(rows) if i not in looped]
    if norm == "sym":
        arcs = [(i, j, w) for i, j, w in arcs if i != j]
    if norm == "mean_out":
        arcs = [(j, i, w) for i, j, w in arcs]
    a, size = np.zeros((rows, rows)), np.zeros((rows, rows))
    for i, j, w in arcs:
        a[i, j] += w
        size[i, j] += abs(w)
    degree = size.sum(0 if norm == "sym" else 1)
    if norm in ("gcn", "sym"):
        return _inverse(np.sqrt(degree)) @ a @ _inverse(np.sqrt(degree))
    return a if norm in ("sum", "loops") else _inverse(degree) @ a


def snapshot_matrix(norm: Norm, plain: PlainGraph, t: int) -> Dense:
    """The matrix of one snapshot, over its present nodes."""
    at = {node: row for row, node in enumerate(plain.present(t))}
    return normalised(norm, len(at), [(at[v], at[u], w) for v, u, w in plain.arcs(t)])


def window_matrix(norm: Norm, plain: PlainGraph) -> Dense:
    """The matrices of all snapshots along the diagonal."""
    cells = plain.cells()
    out = np.zeros((len(cells), len(cells)))
    first = 0
    for t in range(len(plain.snapshots)):
        block = snapshot_matrix(norm, plain, t)
        out[first : first + len(block), first : first + len(block)] = block
        first += len(block)
    return out


def _inverse(degree: Dense) -> Dense:
    return np.diag([1 / d if d > 0 else 0.0 for d in degree])
