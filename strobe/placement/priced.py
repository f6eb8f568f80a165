"""Snapshots placed as they arrive: a base partition, improved while it pays, at prices that rise as ranks fill up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from strobe.errors import InputError
from strobe.graph import Snapshot
from strobe.ops.csr import FloatArray, IntArray
from strobe.placement.arriving import NOWHERE, Arriving, reaching
from strobe.placement.edge_weights import Weighed, weighed
from strobe.placement.kept import Kept, RowBytes, enough
from strobe.placement.prices import prices, rewards

Price = Literal["marginal", "printed"]


@dataclass(frozen=True, kw_only=True)
class Terms:
    """On what terms snapshots are placed; see ``Online``, whose options these are."""

    window: int
    segments: int
    capacity: int | None
    slack: float
    sweeps: int
    eta: float
    price: Price


@dataclass(eq=False)
class Parts:
    """A snapshot's cells on ranks, and the room that is left there while they move."""

    last: IntArray  # [n], where nodes were in the snapshot before
    rows: RowBytes
    free: IntArray  # [T, W], bytes, now and in each of the next snapshots if all stay
    owner: IntArray  # [n]
    taken: IntArray  # [W], bytes of this snapshot


class Priced(Arriving):
    """Snapshots arrive, one after the other, on so many ranks."""

    def __init__(self, terms: Terms, num_ranks: int) -> None:
        self._terms = terms
        self._num_ranks = num_ranks
        self._last: IntArray = np.empty(0, np.int16)  # where each node was in the snapshot before, [N]
        self._kept = Kept(terms.window, num_ranks)
        self._rewards: FloatArray = np.zeros(num_ranks)
        self._least = math.inf  # utility per byte, of all snapshots that had any
        self._capacity = terms.capacity or 0

    def arrive(self, snapshot: Snapshot) -> IntArray:
        """The owners of a snapshot's cells. Where they do not fit, nothing has changed."""
        everywhere = reaching(self._last, snapshot)
        last, rows = everywhere[snapshot.nodes], RowBytes.of(snapshot, self._terms.segments)
        ahead = self._kept.ahead(rows, placed=False)
        capacity = self._capacity
        if self._terms.capacity is None:
            capacity = max(capacity, enough(ahead, last, rows, self._terms.slack))
        parts = self._based(snapshot, last, rows, capacity - ahead)
        self._improve(parts, weighed(snapshot), ahead, capacity)
        self._last = np.full_like(everywhere, NOWHERE)
        self._last[snapshot.nodes] = parts.owner
        self._capacity = capacity
        return parts.owner

    def remembered(self) -> dict[str, Any]:
        """Where nodes are, what ranks keep, and what it took so far."""
        return {
            "last": self._last.copy(),
            "kept": self._kept.remembered(),
            "rewards": self._rewards.copy(),
            "least": self._least,
            "capacity": self._capacity,
        }

    def recall(self, found: dict[str, Any]) -> None:
        """Goes on from what was remembered."""
        self._last = np.array(found["last"], np.int16)
        self._kept.recall(found["kept"])
        self._rewards = np.array(found["rewards"], np.float64)
        self._least, self._capacity = float(found["least"]), int(found["capacity"])

    def _based(self, snapshot: Snapshot, last: IntArray, rows: RowBytes, free: IntArray) -> Parts:
        """The base partition."""
        from strobe.placement.sweeps import settle  # numba takes its time to load

        new, staying = rows.of_new(len(free)), rows.of_staying(len(free))
        room, owner = free[0].copy(), np.empty_like(last)
        lost = settle(last, int(new[0]), int(staying[0]), room, owner)
        if lost >= 0:
            raise self._too_small(snapshot, lost, last, rows, free, room)
        stayed = np.bincount(owner[owner == last], minlength=self._num_ranks)
        came = np.bincount(owner, minlength=self._num_ranks) - stayed
        later = free - np.outer(staying, stayed) - np.outer(new, came)
        return Parts(last, rows, later, owner, free[0] - room)

    def _improve(self, parts: Parts, links: Weighed, ahead: IntArray, capacity: int) -> None:
        """Cells move while it pays; then prices, rewards and what is kept go on to the next snapshot."""
        from strobe.placement.sweeps import sweep, together, weights_by_rank  # numba takes its time to load

        window, eta, rows, held = self._terms.window, self._terms.eta, parts.rows, int(ahead[0].sum())
        arrays = links.row_ptr, links.col, links.weight
        sizes = rows.of_new(window), rows.of_staying(window)
        near = weights_by_rank(*arrays, parts.owner, self._num_ranks)
        least = self._least if math.isfinite(self._least) else _per_byte(together(near, parts.owner), held, parts)
        price = prices(ahead, capacity, least, eta)
        for _ in _until_it_repeats(self._terms.sweeps if self._num_ranks > 1 else 0, parts.owner):
            extra = rewards(together(near, parts.owner), price, parts.taken, len(parts.owner), eta)
            pays = self._pays(extra, price, int(sizes[0][0]), int(sizes[1][0]))
            if not sweep(*arrays, parts.last, *sizes, *pays, near, parts.free, parts.taken, parts.owner):
                break
        self._kept.add(parts.owner, parts.last)
        utility = together(near, parts.owner)
        price = prices(self._kept.ahead(rows, placed=True), capacity, least, eta)
        self._rewards = rewards(utility, price, parts.taken, len(parts.owner), eta)
        if utility:
            self._least = min(self._least, _per_byte(utility, held, parts))

    def _pays(
        self, extra: FloatArray, price: FloatArray, new: int, staying: int
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What ranks pay a node that is new there, what one that stays, given their bytes, and what they charge for
        each byte that they have taken of the snapshot, [W] each."""
        if self._terms.price == "printed":
            return extra, extra - self._rewards, price
        return extra - price * new, extra - self._rewards - price * staying, np.zeros(self._num_ranks)

    def _too_small(
        self, snapshot: Snapshot, cell: int, last: IntArray, rows: RowBytes, free: IntArray, room: IntArray
    ) -> InputError:
        """Says which rank lacks how many bytes for which snapshot, and how many would do."""
        rank = int(room.argmax())
        would_do = enough(self._capacity - free, last, rows)
        return InputError(
            f"snapshot {snapshot.t} ({snapshot.time}) does not fit: rank {rank} has the most room, and lacks "
            f"{rows.full - int(room[rank]):,} bytes for the {rows.full:,} of node {int(snapshot.nodes[cell])}; "
            f"{int(free[0, rank]):,} of its capacity of {self._capacity:,} bytes were free for this snapshot. "
            f"Give each of the {self._num_ranks} ranks {would_do:,} bytes, take more ranks or a shorter window"
        )


def _until_it_repeats(sweeps: int, owner: IntArray) -> Iterator[None]:
    """As many sweeps as there should be. Owners decide how the next one goes: once they are as they were some sweeps
    ago, whole rounds of the circle that they go in are left out, for they change nothing (Brent 1980)."""
    seen, ago, next_look = owner.copy(), 0, 1
    while sweeps:
        yield
        sweeps, ago = sweeps - 1, ago + 1
        if np.array_equal(owner, seen):
            sweeps, ago = sweeps % ago, 0
        elif ago == next_look:
            seen, ago, next_look = owner.copy(), 0, 2 * next_look


def _per_byte(utility: int, held: int, parts: Parts) -> float:
    """Utility of a snapshot for each byte of its window; 0 where there is nothing."""
    return utility / max(held + int(parts.taken.sum()), 1)
