"""Small graphs of linked vertices as plain Python data: the slow, obvious reference for what their links mean."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import combinations, pairwise

import numpy as np
from hypothesis import strategies as st

from strobe.ops.graph.label_propagation import Labels, Links

WORD = 1 << 64


@dataclass(frozen=True)
class PlainLinks:
    """Pairs (a, b), a < b, with weights, and rows of vertices, linked one with the next by ``chain``."""

    num: int
    pairs: dict[tuple[int, int], float]
    rows: list[list[int]] = field(default_factory=list)
    chain: float = 0.0

    def build(self) -> Links:
        """The same as arrays."""
        ends = sorted([(a, b, w) for (a, b), w in self.pairs.items()] + [(b, a, w) for (a, b), w in self.pairs.items()])
        degree = Counter(a for a, _, _ in ends)
        row_ptr = np.cumsum([0] + [degree[a] for a in range(self.num)], dtype=np.int64)
        before, after = (np.full(self.num, -1, np.int32) for _ in range(2))
        for row in self.rows:
            for earlier, later in pairwise(row):
                before[later], after[earlier] = earlier, later
        col, weight = np.array([b for _, b, _ in ends], np.int32), np.array([w for _, _, w in ends], np.float32)
        return Links(row_ptr, col, weight, before, after, self.chain)

    def near(self, vertex: int) -> dict[int, float]:
        """The neighbours of a vertex with all weight that joins it with them."""
        found: dict[int, float] = defaultdict(float)
        for (a, b), weight in [
            *self.pairs.items(),
            *((pair, self.chain) for row in self.rows for pair in pairwise(row)),
        ]:
            if vertex in (a, b):
                found[a + b - vertex] += weight
        return found

    def between(self, group: list[int]) -> dict[tuple[int, int], float]:
        """The weight between every two groups that have links, both ways."""
        found: dict[tuple[int, int], float] = defaultdict(float)
        for vertex in range(self.num):
            for other, weight in self.near(vertex).items():
                if group[vertex] != group[other]:
                    found[group[vertex], group[other]] += weight
        return dict(found)


def complete(num: int) -> PlainLinks:
    return PlainLinks(num, dict.fromkeys(combinations(range(num), 2), 1.0))


def bipartite(one: int, other: int) -> PlainLinks:
    return PlainLinks(one + other, {(a, one + b): 1.0 for a in range(one) for b in range(other)})


def star(num: int) -> PlainLinks:
    """Vertex 0 in the middle."""
    return PlainLinks(num, {(0, leaf): 1.0 for leaf in range(1, num)})


def cycle(num: int) -> PlainLinks:
    return PlainLinks(num, {(min(at, (at + 1) % num), max(at, (at + 1) % num)): 1.0 for at in range(num)})


def random_links(num: int, num_pairs: int, seed: int = 0) -> PlainLinks:
    """Weights that are whole numbers, and rows of three."""
    random = np.random.default_rng(seed)
    ends = np.sort(random.integers(0, num, (num_pairs, 2)), axis=1).tolist()
    pairs = {(a, b): float(random.integers(1, 9)) for a, b in ends if a != b}
    return PlainLinks(num, pairs, [[at, at + 1, at + 2] for at in range(0, num - 2, 3)], 3.0)


@st.composite
def plain_links(draw: st.DrawFn, max_num: int = 10) -> PlainLinks:
    """Weights are halves, so that sums are exact; some are 0."""
    num = draw(st.integers(0, max_num))
    weight = st.integers(0, 6).map(lambda n: n / 2)
    pairs = draw(st.dictionaries(st.sampled_from(list(combinations(range(num), 2))), weight)) if num > 1 else {}
    order, cuts = draw(st.permutations(range(num))), draw(st.sets(st.integers(0, num)))
    rows = [list(order[a:b]) for a, b in pairwise(sorted({0, num} | cuts))]
    return PlainLinks(num, pairs, rows, draw(weight))


def mixed(value: int, salt: int) -> int:
    """A number drawn by a number (splitmix64)."""
    z = (value * 0x9E3779B97F4A7C15 + salt) % WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % WORD
    return z ^ (z >> 31)


def one_round(links: PlainLinks, label: list[int], size: list[int], limit: int, salt: int) -> list[int]:
    """Half of the vertices look at the labels as they are; then they move in order, while there is room."""
    held = held_by(label, size)
    wanted = list(label)
    for vertex in range(links.num):
        if mixed(vertex, salt) % 2:
            continue
        total: dict[int, float] = defaultdict(float)
        for other, weight in links.near(vertex).items():
            total[label[other]] += weight
        own = total.pop(label[vertex], 0.0)
        open_to = [to for to in total if total[to] > own and held[to] + size[vertex] <= limit]
        wanted[vertex] = max(open_to, key=lambda to: (total[to], mixed(to, salt)), default=label[vertex])
    moved = list(label)
    for vertex, to in enumerate(wanted):
        if to != moved[vertex] and held[to] + size[vertex] <= limit:
            held[moved[vertex]] -= size[vertex]
            held[to] += size[vertex]
            moved[vertex] = to
    return moved


def held_by(label: list[int] | Labels, size: list[int]) -> Counter[int]:
    """The size of every label."""
    held: Counter[int] = Counter()
    for each, weight in zip(list(label), size, strict=True):
        held[int(each)] += weight
    return held
