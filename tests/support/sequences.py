"""Random presence for tests of stages: nodes that start late, end early, pause, and snapshots without anybody."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from strobe.ops.time.sequences import Sequences


@st.composite
def presences(draw: st.DrawFn, *, max_slots: int = 7, max_snapshots: int = 6) -> Sequences:
    """Sequences of up to ``max_slots`` nodes."""
    num_slots = draw(st.integers(1, max_slots))
    everyone = list(range(num_slots))
    shots = draw(st.lists(st.just(everyone) | st.lists(st.sampled_from(everyone), unique=True), max_size=max_snapshots))
    return Sequences.of([np.array(sorted(shot), np.int64) for shot in shots], num_slots)


def awkward() -> Sequences:
    """Seven nodes: three full snapshots around partial ones, one of them empty."""
    everyone = np.arange(7)
    shots = [
        np.array([1, 4]),
        everyone,
        np.array([0, 1, 2, 5, 6]),
        np.array([], np.int64),
        everyone,
        np.array([3]),
        everyone,
    ]
    return Sequences.of(shots, 7)
