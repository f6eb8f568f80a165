"""Matrices of sampled arcs, beside those of whole snapshots."""

from __future__ import annotations

import numpy as np
import pytest

from strobe.ops.sparse.csr import expand_rows
from strobe.ops.sparse.normalize import Norm
from strobe.ops.sparse.sampling import ALL_NEIGHBORS
from strobe.view.data.sampled import Topology
from tests.support.dense import Dense, snapshot_matrix
from tests.support.graphs import PlainGraph, PlainSnapshot

RANDOM = np.random.default_rng(4)
EDGES = [
    (int(u), int(v), float(w)) for u, v, w in zip(*RANDOM.integers(0, 9, (2, 40)), RANDOM.normal(size=40), strict=True)
]
PLAIN = PlainGraph(9, [PlainSnapshot(list(range(9)), EDGES, 0)], weighted=True)  # parallel edges, self-loops


def sampled(norm: Norm, plain: PlainGraph, seeds: list[int], fanout: int, key: int = 0) -> Dense:
    """Rows of the seeds, over all cells of the snapshot."""
    topology = Topology(plain.build()[0])
    sample = topology.sample(np.array(seeds), [fanout], key)
    row_ptr, col, weight = topology.matrix(norm, sample.position, sample.hops[0])
    out = np.zeros((len(seeds), len(topology.nodes)))
    np.add.at(out, (expand_rows(row_ptr), sample.position[col]), 1.0 if weight is None else weight)
    return out


@pytest.mark.parametrize("norm", ["gcn", "mean", "sum", "loops", "sym"])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("directed", [True, False])
def test_all_neighbors_give_the_rows_of_the_whole_snapshot(norm: Norm, weighted: bool, directed: bool) -> None:
    edges = EDGES if weighted else [(u, v, 1.0) for u, v, _ in EDGES]
    plain = PlainGraph(9, [PlainSnapshot(list(range(9)), edges, 0)], weighted=weighted, directed=directed)
    seeds = [7, 0, 3]
    found = sampled(norm, plain, seeds, ALL_NEIGHBORS)
    np.testing.assert_allclose(found, snapshot_matrix(norm, plain, 0)[seeds], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("norm", ["gcn", "mean", "sum", "sym"])
def test_the_mean_over_samples_is_the_row_of_the_whole_snapshot(norm: Norm) -> None:
    """By 5 standard errors of 1,000 samples."""
    seeds = [1, 8]
    found = np.stack([sampled(norm, PLAIN, seeds, 2, key) for key in range(1_000)])
    error = found.std(0) / np.sqrt(len(found))
    assert error.any()
    assert (np.abs(found.mean(0) - snapshot_matrix(norm, PLAIN, 0)[seeds]) <= 5 * error + 1e-7).all()
