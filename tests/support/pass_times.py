"""Made-up measurements: chunks with known costs."""

from __future__ import annotations

import numpy as np

from strobe.ops.sparse.csr import FloatArray
from strobe.planner.time.chunks import ChunkTimes

CELL_S, ARC_S, STATE_S = 4e-7, 3e-8, 6e-7


def invented(count: int = 200, *, noise: float = 0.0, seed: int = 0, with_time: bool = True) -> ChunkTimes:
    """Structure takes a cells + b arcs, time c cells, each times the hidden columns."""
    rng = np.random.default_rng(seed)

    def between(low: float, high: float) -> FloatArray:
        drawn: FloatArray = low * np.exp(rng.random(count) * np.log(high / low))
        return drawn

    cells = np.rint(between(300, 20_000)).astype(np.int64)
    arcs = np.rint(cells * between(0.5, 30)).astype(np.int64)
    sequences = np.maximum(np.rint(cells / between(1, 40)), 1).astype(np.int64)
    hidden = rng.choice([16, 32, 48, 64], count)
    wide = hidden / 32
    off = 1 + noise * rng.standard_normal((2, count))
    return ChunkTimes(
        cells=cells,
        arcs=arcs,
        sequences=sequences,
        features=rng.integers(1, 65, count),
        hidden=hidden,
        structure=(CELL_S * cells + ARC_S * arcs) * wide * off[0],
        time=STATE_S * cells * wide * off[1] * with_time,
    )
