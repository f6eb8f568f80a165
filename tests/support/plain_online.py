"""Algorithms 1 to 3 of online placement with lists and dictionaries, counted from scratch at every move."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field

import numpy as np

from strobe.ops.sparse.csr import FloatArray
from strobe.placement import Online
from strobe.placement.online import ROW_WEIGHT, compute_prices, compute_rewards
from tests.support.graphs import PlainGraph

Owners = dict[int, int]
"""The rank of every node of a snapshot."""

Links = dict[frozenset[int], int]
"""What every pair of nodes with an edge weighs."""


class NoRoomError(Exception):
    """A snapshot does not fit: the rank with the most room, and the bytes it lacks for the next node."""

    def __init__(self, t: int, rank: int, missing: int) -> None:
        super().__init__(t, rank, missing)
        self.t, self.rank, self.missing = t, rank, missing


def weights(plain: PlainGraph, t: int) -> Links:
    """What every pair of nodes with an edge weighs in a snapshot."""
    arcs = plain.arcs(t)
    degree = {v: sum(arc[0] == v for arc in arcs) for v in plain.present(t)}
    found: Links = {}
    for destination, source, _ in arcs:
        if destination != source:
            pair = frozenset((destination, source))
            found[pair] = found.get(pair, 0) + ROW_WEIGHT // degree[destination]
    return found


def utility(links: Links, owner: Owners) -> int:
    """The weight of pairs on one rank."""
    return sum(weight for pair, weight in links.items() if len({owner[v] for v in pair}) == 1)


@dataclass
class PlainOnline:
    """An online placement of a plain graph; ``placed`` has the owners of every snapshot."""

    online: Online
    num_ranks: int
    num_columns: int
    placed: list[Owners] = field(default_factory=list)
    capacity: int = 0
    least: float = math.inf
    mu: list[float] = field(default_factory=list)

    @property
    def full(self) -> int:
        return 4 * self.num_columns

    @property
    def change(self) -> int:
        return 4 * math.ceil(self.num_columns / self.online.segments)

    def held(self, snapshots: list[Owners]) -> list[int]:
        """Bytes of every rank when these snapshots are all that is left."""
        taken = [0] * self.num_ranks
        for before, after in zip([{}, *snapshots], snapshots, strict=False):
            for v, rank in after.items():
                taken[rank] += self.change if before.get(v) == rank else self.full
        return taken

    def latest(self, number: int) -> list[Owners]:
        """The snapshots that were placed last."""
        return self.placed[max(0, len(self.placed) - number) :]

    def ahead(self, owner: Owners, later: int) -> list[int]:
        """Bytes of every rank some snapshots later, if a snapshot has these owners and all nodes stay."""
        return self.held(self.latest(self.online.window - 1 - later) + [owner] * (1 + later))

    def checked(self, owner: Owners) -> None:
        """At no moment has a rank more than its capacity."""
        assert max(self.ahead(owner, 0)) <= self.capacity, "a rank has more than its capacity"

    def alone(self, owner: Owners) -> list[int]:
        """What a snapshot takes: less of nodes that were on the same rank before."""
        taken = [0] * self.num_ranks
        for v, rank in owner.items():
            taken[rank] += self.size(v, rank)
        return taken

    def size(self, v: int, rank: int) -> int:
        """In a window of one snapshot there is nothing that a row was changed from."""
        return self.change if self.stays(v, rank) and self.online.window > 1 else self.full

    def stays(self, v: int, rank: int) -> bool:
        return bool(self.placed) and self.placed[-1].get(v) == rank

    def arrive(self, nodes: list[int], links: Links) -> Owners:
        """Algorithm 3, one turn."""
        window, eta = self.online.window, self.online.eta
        self.mu = self.mu or [0.0] * self.num_ranks
        held = [np.array(self.held(self.latest(number))) for number in range(window - 1, -1, -1)]
        self.grow(nodes)
        owner = self.base(nodes)
        per_byte = utility(links, owner) / max(int(held[0].sum()) + sum(self.alone(owner)), 1)
        least = self.least if self.least < math.inf else per_byte
        price = compute_prices(np.stack(held), self.capacity, least, eta)
        for _ in range(self.online.sweeps):
            if not self.sweep(nodes, links, owner, price):
                break
        gained, taken = utility(links, owner), self.alone(owner)
        self.placed.append(owner)
        after = [np.array(self.held(self.latest(number))) for number in range(window, 0, -1)]
        price = compute_prices(np.stack(after), self.capacity, least, eta)
        self.mu = compute_rewards(gained, price, np.array(taken), len(nodes), eta).tolist()
        if gained:
            self.least = min(self.least, gained / (int(held[0].sum()) + sum(taken)))
        return owner

    def grow(self, nodes: list[int]) -> None:
        """Finds a capacity, where none was given: all stay, and those who are new are spread evenly in parts."""
        if self.online.capacity is not None:
            self.capacity = self.online.capacity
            return
        before = self.placed[-1] if self.placed else {}
        staying = {v: before[v] for v in nodes if v in before}
        new = [self.full + later * self.change for later in range(self.online.window)]
        total = [
            sum(self.ahead(staying, later)) + new[later] * (len(nodes) - len(staying))
            for later in range(self.online.window)
        ]
        share = max(total) / self.num_ranks
        most = max(self.ahead(staying, 0))
        self.capacity = max(self.capacity, most, math.ceil(self.online.slack * share) + self.full)

    def base(self, nodes: list[int]) -> Owners:
        """Algorithm 1."""
        owner: Owners = {}
        free = [self.capacity - held for held in self.held(self.latest(self.online.window - 1))]
        before = self.placed[-1] if self.placed else {}
        for v in nodes:
            if v in before and free[before[v]] >= self.size(v, before[v]):
                owner[v] = before[v]
                free[before[v]] -= self.size(v, before[v])
                self.checked(owner)
        heap = [(-room, rank) for rank, room in enumerate(free)]
        heapq.heapify(heap)
        for v in nodes:
            if v not in owner:
                room, rank = heap[0]
                if -room < self.full:
                    raise NoRoomError(len(self.placed), rank, self.full + room)
                heapq.heapreplace(heap, (room + self.full, rank))
                owner[v] = rank
                self.checked(owner)
        return owner

    def sweep(self, nodes: list[int], links: Links, owner: Owners, price: FloatArray) -> bool:
        """Algorithm 2, one sweep: whether anybody moved."""
        extra = compute_rewards(utility(links, owner), price, np.array(self.alone(owner)), len(nodes), self.online.eta)
        moved = False
        for v in nodes:
            mine = owner[v]
            best, most = mine, self.payoff(v, mine, links, owner, extra, price)
            for rank in range(self.num_ranks):
                if rank != mine and self.has_room(rank, owner | {v: rank}):
                    pays = self.payoff(v, rank, links, owner, extra, price)
                    if pays > most:
                        best, most = rank, pays
            owner[v] = best
            self.checked(owner)
            moved |= best != mine
        return moved

    def has_room(self, rank: int, owner: Owners) -> bool:
        """Whether a rank can keep what it has then, now and for as long as the snapshot is kept."""
        return all(self.ahead(owner, later)[rank] <= self.capacity for later in range(self.online.window))

    def payoff(self, v: int, rank: int, links: Links, owner: Owners, extra: FloatArray, price: FloatArray) -> float:
        """Line 6: what v has there of its edges and a reward, less what room costs."""
        near = sum(weight for pair, weight in links.items() if v in pair and owner[min(pair - {v})] == rank)
        reward = extra[rank] - self.mu[rank] if self.stays(v, rank) else extra[rank]
        if self.online.price == "total":
            return float(near + reward - price[rank] * self.alone(owner)[rank])
        return float(near + (reward - price[rank] * self.size(v, rank)))


def place(plain: PlainGraph, num_ranks: int, online: Online) -> list[Owners]:
    """The owners of all snapshots."""
    columns = 2 if plain.node_x or plain.derived or any(shot.x is not None for shot in plain.snapshots) else 1
    running = PlainOnline(online, num_ranks, columns)
    return [running.arrive(plain.present(t), weights(plain, t)) for t in range(len(plain.snapshots))]
