"""Size-constrained label propagation: vertices take the heaviest label among their neighbors.

Deterministic for a seed on any number of threads. In each round a hash selects half of the vertices (so bipartite sides
do not swap labels forever); they choose by the labels of the round before, and then move in order while there is room.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from strobe.ops.runtime.njit import cached_njit
from strobe.ops.runtime.parallel import run_parts
from strobe.ops.sparse.csr import IntArray

Labels = npt.NDArray[np.int32]
Weights = npt.NDArray[np.float32]
Sums = npt.NDArray[np.int64]

PART_SIZE = 1 << 20
"""Vertices and links per part of parallel work."""

CONVERGED_SHARE = 0.002
"""Stop after two rounds in which at most this share of vertices move."""

ROUNDS = 6
"""Default number of rounds."""


@dataclass(frozen=True, eq=False)
class Links:
    """Symmetric weighted graph in CSR, without self-loops.

    ``weight`` has one number per entry, or one for all. ``before`` and ``after`` link each vertex to its predecessor
    and successor in a chain (-1: none) with weight ``chain``.
    """

    row_ptr: Sums  # [n + 1]
    col: Labels  # [m]
    weight: Weights  # [m], or [1]
    before: Labels  # [n], or empty without chains
    after: Labels
    chain: float = 0.0

    @property
    def num_vertices(self) -> int:
        return len(self.row_ptr) - 1

    @cached_property
    def num_links(self) -> int:
        """Number of links, each counted from both ends."""
        return len(self.col) + 2 * int((self.before >= 0).sum())

    @property
    def arrays(self) -> tuple[Sums, Labels, Weights, Labels, Labels, np.float32]:
        """Kernel arguments."""
        return self.row_ptr, self.col, self.weight, self.before, self.after, np.float32(self.chain)


def propagate(
    links: Links, size: Sums, limit: int, *, rounds: int = ROUNDS, seed: int = 0, label: Labels | None = None
) -> tuple[Labels, int]:
    """Propagate labels; returns the label of every vertex and the number of rounds.

    Args:
        links: the graph.
        size: size of every vertex, [n].
        limit: maximum total size of a label. A larger vertex keeps its own label.
        rounds: maximum number of rounds.
        seed: seed of the hashes.
        label: initial labels; by default every vertex has its own.
    """
    label = np.arange(links.num_vertices, dtype=np.int32) if label is None else label.astype(np.int32)
    total_size = np.zeros(max(links.num_vertices, int(label.max(initial=0)) + 1), np.int64)
    _add_sizes(label, size, total_size)
    choice = np.empty_like(label)
    parts = _parts(links.row_ptr)
    table = _table_size(int(np.diff(links.row_ptr).max(initial=0)))
    done, quiet = 0, 0
    while done < rounds and quiet < 2:
        done += 1
        salt = (seed * 0x9E3779B97F4A7C15 + done * 0xBF58476D1CE4E5B9) % (1 << 63)

        def choose(part: int, salt: int = salt) -> None:
            vertices = label, total_size, size
            _choose_labels(parts[part], parts[part + 1], links.arrays, vertices, limit, salt, table, choice)

        run_parts(choose, len(parts) - 1)
        moved = _move_vertices(label, choice, total_size, size, limit)
        quiet = quiet + 1 if moved <= CONVERGED_SHARE * links.num_vertices else 0
    return label, done


def compact_labels(label: Labels) -> tuple[Labels, int]:
    """Renumber labels from 0, preserving their order; returns the labels and their number."""
    used = np.zeros(int(label.max(initial=-1)) + 1, bool)
    used[label] = True
    new_label = np.cumsum(used, dtype=np.int32) - np.int32(1)
    return new_label[label], int(used.sum())


def coarsen(links: Links, group: Labels, num_groups: int) -> Links:
    """Contract groups to vertices, summing the weights of parallel links."""
    order = np.argsort(group, kind="stable").astype(np.int32)
    ptr = np.concatenate(([0], np.cumsum(np.bincount(group, minlength=num_groups)))).astype(np.int64)
    parts = _parts(ptr, PART_SIZE // 16)
    rows: dict[int, tuple[Sums, Labels, Weights]] = {}

    def contract(part: int) -> None:
        rows[part] = _contract_groups(parts[part], parts[part + 1], order, ptr, group, links.arrays)

    run_parts(contract, len(parts) - 1)
    counts, cols, weights = zip(*(rows[part] for part in sorted(rows)), strict=True)
    no_chain = np.empty(0, np.int32)
    row_ptr = np.cumsum(np.concatenate([np.zeros(1, np.int64), *counts]))
    return Links(row_ptr, np.concatenate(cols), np.concatenate(weights), no_chain, no_chain)


def count_remote_reads(links: Links, owner: Labels, num_owners: int) -> IntArray:
    """Count, per owner, its vertices that other owners read, once per reading owner, [owners]."""
    parts = _parts(links.row_ptr)
    counts = np.zeros((len(parts) - 1, num_owners), np.int64)

    def count(part: int) -> None:
        _count_readers(parts[part], parts[part + 1], links.row_ptr, links.col, owner, counts[part])

    run_parts(count, len(parts) - 1)
    total: IntArray = counts.sum(0)
    return total


def _parts(row_ptr: Sums, size: int = PART_SIZE) -> list[int]:
    """Bounds of parts with about ``size`` vertices plus entries each."""
    count = len(row_ptr) - 1
    all_work = int(row_ptr[-1]) + count
    marks = np.linspace(0, all_work, max(1, all_work // size) + 1)[1:-1]
    cuts = np.searchsorted(row_ptr + np.arange(count + 1), marks)
    return [0, *np.unique(cuts[(cuts > 0) & (cuts < count)]).tolist(), count]


def _table_size(most: int) -> int:
    """Size of a hash table that ``most`` neighbors and two chain links fill at most half."""
    return 1 << max(2 * (most + 2) - 1, 7).bit_length()


@cached_njit
def _add_sizes(label: Labels, size: Sums, total_size: Sums) -> None:
    for i in range(len(label)):
        total_size[label[i]] += size[i]


@cached_njit
def _hash(value: Any, salt: Any) -> Any:
    """splitmix64 of value and salt."""
    z = np.uint64(value) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@cached_njit
def _add(keys: Any, sums: Any, mask: Any, key: Any, weight: Any, used: Any, count: Any) -> Any:
    """Add a weight to a key of a hash table; ``used`` lists occupied slots, unsigned to avoid numba's wraparound."""
    at = np.uint64(np.uint32(key) * np.uint32(2654435769)) & mask
    while keys[at] != -1 and keys[at] != key:
        at = (at + np.uint64(1)) & mask
    if keys[at] == -1:
        keys[at] = key
        sums[at] = weight
        used[np.uint64(count)] = at
        return count + 1
    sums[at] += weight
    return count


@cached_njit
def _mask(entries: Any) -> Any:
    """Index mask of a hash table for ``entries`` keys: a small table stays in cache."""
    places = np.uint64(8)
    while places < np.uint64(2) * np.uint64(entries):
        places *= np.uint64(2)
    return places - np.uint64(1)


@cached_njit
def _choose_labels(
    first: int, last: int, links: Any, vertices: Any, limit: int, salt: int, table: int, choice: Labels
) -> None:
    """The label that every vertex of a part chooses: the heaviest; of equals its own, else the one of highest hash."""
    row_ptr, col, weight, before, after, chain = links
    label, total_size, size = vertices
    keys = np.full(table, -1, np.int32)
    sums = np.zeros(table, np.float32)
    used = np.empty(table, np.uint64)
    single = len(weight) == 1
    in_rows = len(before) > 0 and chain > 0
    for vertex in range(first, last):
        i = np.uint64(vertex)
        current = label[i]
        choice[i] = current
        if _hash(i, salt) & np.uint64(1):
            continue
        start, stop = np.uint64(row_ptr[i]), np.uint64(row_ptr[i + np.uint64(1)])
        mask = _mask(stop - start + np.uint64(2))
        count = 0
        for j in range(start, stop):
            one = weight[np.uint64(0)] if single else weight[j]
            count = _add(keys, sums, mask, label[np.uint64(col[j])], one, used, count)
        if in_rows and before[i] >= 0:
            count = _add(keys, sums, mask, label[np.uint64(before[i])], chain, used, count)
        if in_rows and after[i] >= 0:
            count = _add(keys, sums, mask, label[np.uint64(after[i])], chain, used, count)
        best, most, best_hash = current, np.float32(0), np.uint64(0)
        for k in range(count):
            if keys[used[np.uint64(k)]] == current:
                most = sums[used[np.uint64(k)]]
        for k in range(count):
            at = used[np.uint64(k)]
            key, total = keys[at], sums[at]
            keys[at] = -1
            if key != current and (total > most or (total == most and best != current)):
                tie = _hash(key, salt)
                if (total > most or tie > best_hash) and total_size[np.uint64(key)] + size[i] <= limit:
                    best, most, best_hash = key, total, tie
        choice[i] = best


@cached_njit
def _move_vertices(label: Labels, choice: Labels, total_size: Sums, size: Sums, limit: int) -> int:
    """Move vertices to their chosen labels in order while there is room; returns the number moved."""
    moved = 0
    for i in range(len(label)):
        to = choice[i]
        if to != label[i] and total_size[to] + size[i] <= limit:
            total_size[label[i]] -= size[i]
            total_size[to] += size[i]
            label[i] = to
            moved += 1
    return moved


@cached_njit
def _contract_groups(first: int, last: int, order: Labels, ptr: Sums, group: Labels, links: Any) -> Any:
    """Rows of the contracted graph: entries per row, columns, weights."""
    row_ptr, col, weight, before, after, chain = links
    entries = np.zeros(last - first, np.int64)
    for g in range(first, last):
        for k in range(ptr[g], ptr[g + 1]):
            entries[g - first] += row_ptr[order[k] + 1] - row_ptr[order[k]] + 2
    table = np.int64(_mask(entries.max() if len(entries) else 0)) + 1
    keys = np.full(table, -1, np.int32)
    sums = np.zeros(table, np.float32)
    used = np.empty(table, np.uint64)
    single = len(weight) == 1
    in_rows = len(before) > 0 and chain > 0
    counts = np.zeros(last - first, np.int64)
    cols = np.empty(1024, np.int32)
    weights = np.empty(1024, np.float32)
    filled = 0
    for g in range(first, last):
        mask = _mask(entries[g - first])
        count = 0
        for k in range(ptr[g], ptr[g + 1]):
            i = order[k]
            for j in range(row_ptr[i], row_ptr[i + 1]):
                other = group[col[j]]
                if other != g:
                    count = _add(keys, sums, mask, other, weight[0] if single else weight[j], used, count)
            if in_rows and before[i] >= 0 and group[before[i]] != g:
                count = _add(keys, sums, mask, group[before[i]], chain, used, count)
            if in_rows and after[i] >= 0 and group[after[i]] != g:
                count = _add(keys, sums, mask, group[after[i]], chain, used, count)
        while filled + count > len(cols):
            cols = np.concatenate((cols, np.empty_like(cols)))
            weights = np.concatenate((weights, np.empty_like(weights)))
        for k in range(count):
            cols[filled + k] = keys[used[k]]
            weights[filled + k] = sums[used[k]]
            keys[used[k]] = -1
        filled += count
        counts[g - first] = count
    return counts, cols[:filled].copy(), weights[:filled].copy()


@cached_njit
def _count_readers(first: int, last: int, row_ptr: Sums, col: Labels, owner: Labels, counts: Sums) -> None:
    """Count readers of each vertex by owner; ``seen`` holds the vertex for which an owner was last counted."""
    seen = np.full(len(counts), -1, np.int64)
    for i in range(first, last):
        for j in range(row_ptr[i], row_ptr[i + 1]):
            reader = owner[col[j]]
            if reader != owner[i] and seen[reader] != i:
                seen[reader] = i
                counts[owner[i]] += 1
