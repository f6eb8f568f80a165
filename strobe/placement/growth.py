"""Chunks: sets of cells that hang together, grown by label propagation, level by level."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from strobe.ops.csr import distinct
from strobe.ops.labels import Labels, Links, Sums, between, compacted, propagate

STEADY = 0.9
"""Growing ends with the level that leaves at least this share of its chunks."""


@dataclass(frozen=True, eq=False)
class Grown:
    """The chunk of every cell, the links between chunks, and what each weighs."""

    of_cell: Labels  # [C]
    links: Links
    size: Sums  # [K]


def grow(links: Links, size: Sums, limit: int, *, rounds: int, seed: int = 0) -> Grown:
    """Cells take labels from those they are linked with; then so do chunks, as long as many of them find others.

    No chunk of several cells weighs more than ``limit``.
    """
    of_cell = np.arange(links.num_vertices, dtype=np.int32)
    while True:
        label, _ = propagate(links, size, limit, rounds=rounds, seed=seed)
        chunk, num_chunks = compacted(label)
        before = links.num_vertices
        of_cell = chunk[of_cell]
        links = between(links, chunk, num_chunks)
        size = np.bincount(chunk, size, num_chunks).astype(np.int64)
        if num_chunks >= STEADY * before:
            return Grown(of_cell, links, size)


def with_owners(chunk: Labels, owner: Labels, num_owners: int) -> Labels:
    """Chunks of which some cells have another owner as one for each of them, numbered from 0."""
    pair = chunk.astype(np.int64) * num_owners + owner
    known = distinct(pair)
    return np.searchsorted(known, pair).astype(np.int32)
