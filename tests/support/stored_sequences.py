"""Snapshots of nodes with features that come, go and return, and mostly stay as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import settings
from hypothesis import strategies as st

Array = npt.NDArray[Any]
Snapshot = tuple[Array, Array]
slow_at_first = settings(deadline=None)  # the first call compiles
VALUES = [0.0, -0.0, 1.5, float("nan"), float("inf")]


@st.composite
def feature_sequences(draw: st.DrawFn, max_nodes: int = 7, max_snapshots: int = 7) -> list[Snapshot]:
    """(nodes, rows) of each snapshot; a few entries change from one to the next, also of nodes that are away."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    num_nodes, width = draw(st.integers(0, max_nodes)), draw(st.integers(0, 6))
    stays, changes = draw(st.sampled_from([0.5, 0.9, 1.0])), draw(st.sampled_from([0.0, 0.1, 0.8]))
    kind = draw(st.sampled_from([np.float32, np.float64]))
    values = np.array(VALUES, kind)
    rows = rng.choice(values, (num_nodes, width))
    snapshots = []
    for _ in range(draw(st.integers(1, max_snapshots))):
        change = rng.random(rows.shape) < changes
        rows = np.where(change, rng.choice(values, rows.shape), rows)
        nodes = np.flatnonzero(rng.random(num_nodes) < stays).astype(np.int32)
        snapshots.append((nodes, rows[nodes]))
    return snapshots


def same_bits(first: Array, second: Array) -> bool:
    return first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes()
