"""Label propagation: vertices take the label that weighs most among their neighbours; those of a label are a group.

Deterministic for a seed, on any number of cores: in a round half of the vertices, drawn by a hash, look at the labels
of the round before, all at once; then they move one after the other, where there is still room. So two sides that
would swap their labels forever do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from strobe.ops.compiled import compiled
from strobe.ops.csr import IntArray
from strobe.ops.threads import run_parts

Labels = npt.NDArray[np.int32]
Weights = npt.NDArray[np.float32]
Sums = npt.NDArray[np.int64]

PART = 1 << 20
"""Vertices and links that a core looks at before it takes the next part."""

SETTLED = 0.002
"""Two rounds in a row in which a smaller share of vertices move are the last."""

ROUNDS = 6
"""Rounds, if nobody says otherwise: later ones move few vertices."""


@dataclass(frozen=True, eq=False)
class Links:
    """Who is linked with whom, symmetric, without self-loops: row i of a CSR has the neighbours of vertex i.

    ``weight`` is one per entry, or a single number for all. Vertices in a row, ``before`` and ``after`` each other,
    are linked as well, with weight ``chain``; -1 is nobody.
    """

    row_ptr: Sums  # [n + 1]
    col: Labels  # [m]
    weight: Weights  # [m], or [1]
    before: Labels  # [n], or empty: there are no such rows
    after: Labels
    chain: float = 0.0

    @property
    def num_vertices(self) -> int:
        return len(self.row_ptr) - 1

    @cached_property
    def num_links(self) -> int:
        """Every link counts twice, once from each side."""
        return len(self.col) + 2 * int((self.before >= 0).sum())

    @property
    def arrays(self) -> tuple[Sums, Labels, Weights, Labels, Labels, np.float32]:
        """As the kernels take them."""
        return self.row_ptr, self.col, self.weight, self.before, self.after, np.float32(self.chain)


def propagate(
    links: Links, size: Sums, limit: int, *, rounds: int = ROUNDS, seed: int = 0, label: Labels | None = None
) -> tuple[Labels, int]:
    """A label for every vertex, and how many rounds it took.

    Args:
        links: who hears whom.
        size: of every vertex, [n].
        limit: labels do not spread beyond this size, all their vertices together. A vertex that is larger keeps its
            own.
        rounds: at most so many.
        seed: of the draws.
        label: what vertices start with; without it every one has its own.
    """
    label = np.arange(links.num_vertices, dtype=np.int32) if label is None else label.astype(np.int32)
    held = np.zeros(max(links.num_vertices, int(label.max(initial=0)) + 1), np.int64)
    _sum_up(label, size, held)
    wanted = np.empty_like(label)
    parts = _parts(links.row_ptr)
    table = _table_size(int(np.diff(links.row_ptr).max(initial=0)))
    done, quiet = 0, 0
    while done < rounds and quiet < 2:
        done += 1
        salt = (seed * 0x9E3779B97F4A7C15 + done * 0xBF58476D1CE4E5B9) % (1 << 63)

        def look(part: int, salt: int = salt) -> None:
            part_of = (parts[part], parts[part + 1], *links.arrays)
            _look(*part_of, label, held, size, limit, salt, table, wanted)

        run_parts(look, len(parts) - 1)
        moved = _move(label, wanted, held, size, limit)
        quiet = quiet + 1 if moved <= SETTLED * links.num_vertices else 0
    return label, done


def compacted(label: Labels) -> tuple[Labels, int]:
    """The same groups, numbered from 0 in order of their labels, and how many there are."""
    used = np.zeros(int(label.max(initial=-1)) + 1, bool)
    used[label] = True
    name = np.cumsum(used, dtype=np.int32) - np.int32(1)
    return name[label], int(used.sum())


def between(links: Links, group: Labels, num_groups: int) -> Links:
    """The links between groups, weights added up."""
    order = np.argsort(group, kind="stable").astype(np.int32)
    ptr = np.concatenate(([0], np.cumsum(np.bincount(group, minlength=num_groups)))).astype(np.int64)
    parts = _parts(ptr, PART // 16)
    found: dict[int, tuple[Sums, Labels, Weights]] = {}

    def join(part: int) -> None:
        found[part] = _joined(parts[part], parts[part + 1], order, ptr, group, *links.arrays)

    run_parts(join, len(parts) - 1)
    counts, cols, weights = zip(*(found[part] for part in sorted(found)), strict=True)
    nobody = np.empty(0, np.int32)
    row_ptr = np.cumsum(np.concatenate([np.zeros(1, np.int64), *counts]))
    return Links(row_ptr, np.concatenate(cols), np.concatenate(weights), nobody, nobody)


def read_elsewhere(links: Links, owner: Labels, num_owners: int) -> IntArray:
    """How many vertices of each owner some other owner's neighbour reads, once per owner that reads it, [owners]."""
    parts = _parts(links.row_ptr)
    found = np.zeros((len(parts) - 1, num_owners), np.int64)

    def count(part: int) -> None:
        _count_readers(parts[part], parts[part + 1], links.row_ptr, links.col, owner, found[part])

    run_parts(count, len(parts) - 1)
    total: IntArray = found.sum(0)
    return total


def _parts(row_ptr: Sums, size: int = PART) -> list[int]:
    """Where vertices are cut into parts of about ``size`` vertices and entries together."""
    count = len(row_ptr) - 1
    all_work = int(row_ptr[-1]) + count
    marks = np.linspace(0, all_work, max(1, all_work // size) + 1)[1:-1]
    cuts = np.searchsorted(row_ptr + np.arange(count + 1), marks)
    return [0, *np.unique(cuts[(cuts > 0) & (cuts < count)]).tolist(), count]


def _table_size(most: int) -> int:
    """Places of a hash table that so many neighbours, and two in a row, fill at most half."""
    return 1 << max(2 * (most + 2) - 1, 7).bit_length()


@compiled
def _sum_up(label: Labels, size: Sums, held: Sums) -> None:
    for i in range(len(label)):
        held[label[i]] += size[i]


@compiled
def _mixed(value: Any, salt: Any) -> Any:
    """A number drawn by a number."""
    z = np.uint64(value) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled
def _add(keys: Any, sums: Any, mask: Any, key: Any, weight: Any, used: Any, count: Any) -> Any:
    """Adds a weight to a key of a hash table; ``used`` lists the places that are taken.

    Places are unsigned: of a signed one numba would ask whether it counts from the end.
    """
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


@compiled
def _mask(entries: Any) -> Any:
    """Places of a hash table for so many keys, less one: a small table stays in cache."""
    places = np.uint64(8)
    while places < np.uint64(2) * np.uint64(entries):
        places *= np.uint64(2)
    return places - np.uint64(1)


@compiled
def _look(
    first: int,
    last: int,
    row_ptr: Sums,
    col: Labels,
    weight: Weights,
    before: Labels,
    after: Labels,
    chain: Any,
    label: Labels,
    held: Sums,
    size: Sums,
    limit: int,
    salt: int,
    table: int,
    wanted: Labels,
) -> None:
    """The label that every vertex of a part would like to have. Of equals its own, else one that is drawn."""
    keys = np.full(table, -1, np.int32)
    sums = np.zeros(table, np.float32)
    used = np.empty(table, np.uint64)
    single = len(weight) == 1
    in_rows = len(before) > 0 and chain > 0
    for vertex in range(first, last):
        i = np.uint64(vertex)
        mine = label[i]
        wanted[i] = mine
        if _mixed(i, salt) & np.uint64(1):
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
        best, most, drawn = mine, np.float32(0), np.uint64(0)
        for k in range(count):
            if keys[used[np.uint64(k)]] == mine:
                most = sums[used[np.uint64(k)]]
        for k in range(count):
            at = used[np.uint64(k)]
            key, total = keys[at], sums[at]
            keys[at] = -1
            if key != mine and (total > most or (total == most and best != mine)):
                draw = _mixed(key, salt)
                if (total > most or draw > drawn) and held[np.uint64(key)] + size[i] <= limit:
                    best, most, drawn = key, total, draw
        wanted[i] = best


@compiled
def _move(label: Labels, wanted: Labels, held: Sums, size: Sums, limit: int) -> int:
    """Vertices go where they want to, in order, as long as there is room; how many went."""
    moved = 0
    for i in range(len(label)):
        to = wanted[i]
        if to != label[i] and held[to] + size[i] <= limit:
            held[label[i]] -= size[i]
            held[to] += size[i]
            label[i] = to
            moved += 1
    return moved


@compiled
def _joined(
    first: int,
    last: int,
    order: Labels,
    ptr: Sums,
    group: Labels,
    row_ptr: Sums,
    col: Labels,
    weight: Weights,
    before: Labels,
    after: Labels,
    chain: Any,
) -> Any:
    """Rows of the links between groups: how many each has, their columns and weights."""
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


@compiled
def _count_readers(first: int, last: int, row_ptr: Sums, col: Labels, owner: Labels, found: Sums) -> None:
    """Adds up, by owner, other owners that read a vertex. ``seen`` says for which vertex an owner was last counted."""
    seen = np.full(len(found), -1, np.int64)
    for i in range(first, last):
        for j in range(row_ptr[i], row_ptr[i + 1]):
            reader = owner[col[j]]
            if reader != owner[i] and seen[reader] != i:
                seen[reader] = i
                found[owner[i]] += 1
