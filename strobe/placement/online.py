"""Online placement of cells under memory limits of ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from strobe.comm import NO_RANK
from strobe.errors import InputError, OptionError
from strobe.graph import Snapshot
from strobe.graph.arrays import read_only
from strobe.io.lazy_import import lazy_import
from strobe.ops.sparse.csr import FloatArray, IntArray
from strobe.placement.algorithms.pricing_kernels import assign_base_partition, internal_weight, sweep, weights_by_rank
from strobe.placement.streaming import StreamingPartitioner, StreamingPlacement, grow_to

if TYPE_CHECKING:
    import scipy.sparse as sp
else:
    sp = lazy_import("scipy.sparse")

PriceRule = Literal["marginal", "total"]


@dataclass(frozen=True, kw_only=True)
class Online(StreamingPlacement):
    """Places each snapshot as it arrives, with few remote neighbors and within a memory limit per rank (Zhang and Wu
    2025, §4).

    Memory model: a rank stores the last ``window`` snapshots. A row is full if its node was not on the rank in the
    previous snapshot or the snapshot is the first of the window; otherwise one of ``segments`` segments of its columns
    changes (float32; one column without features). The paper's (3a) omits the rows that leave the window.

    Algorithm: nodes stay where they were; nodes that are new or do not fit go to the rank with most free memory. Then
    up to ``sweeps`` times each node moves to the rank with the highest payoff: local edges plus a reward minus the
    price of its bytes. A rank qualifies if it has room now and, with all its nodes staying, for as long as the snapshot
    is stored (the paper requires the former only, and may fill ranks that lack room for the next snapshot). Prices rise
    by a factor of up to 2 ``eta`` as a rank fills up, from the lowest positive utility per byte of the snapshots so far
    (initially that of the base partition). Rewards are updated before every sweep.

    Args:
        window, segments: the memory model.
        capacity: bytes per rank, never exceeded; a snapshot that does not fit raises ``InputError``. None: the maximum
            of the capacity so far, the bytes for all nodes to stay, and ``slack`` times an even share of the window at
            its peak plus one row. Ranks are then about even in rows, not in arcs.
        slack: see ``capacity``.
        sweeps: maximum number of sweeps per snapshot.
        eta: price range.
        price: "marginal" charges a node for the bytes it adds, as the paper derives; "total" for all bytes the rank has
            of the snapshot, as in the paper's Algorithm 2.

    Guarantee: utility within 2 max(1, ln(2 eta)) of the optimum over all snapshots if each is locally optimal; but
    sweeps move single nodes and stop where no rank has room for one more. Cost: 8 bytes per cell and rank while a
    snapshot is placed; a sweep reads them once.
    """

    name: ClassVar[str] = "online"
    window: int = 4
    segments: int = 4
    capacity: int | None = None
    slack: float = 1.05
    sweeps: int = 300
    eta: float = 6.0
    price: PriceRule = "marginal"

    def __post_init__(self) -> None:
        super().__post_init__()
        for option in ("window", "segments", "capacity"):
            if getattr(self, option) is not None and getattr(self, option) < 1:
                raise OptionError(f"{option} of {self.name} must be at least 1, not {getattr(self, option)}")
        if self.sweeps < 0:
            raise OptionError(f"sweeps of {self.name} must be at least 0, not {self.sweeps}")
        if self.slack < 1 or self.eta < 1:
            raise OptionError(f"slack and eta of {self.name} must be at least 1, not {self.slack} and {self.eta}")

    def start(self, num_ranks: int, *, seed: int = 0) -> StreamingPartitioner:
        """Start a partitioner without snapshots. Deterministic: the seed is not used."""
        del seed
        return PriceBasedPartitioner(self, num_ranks)


def compute_prices(used_bytes: IntArray, capacity: int, min_utility: float, eta: float) -> FloatArray:
    """Price of a byte on each rank while a snapshot is stored, [W]: the sum of lambda over its window (Algorithm 3).

    ``used_bytes`` [T, W]: bytes of current data on each rank at each of those times. By equation (11), lambda =
    F (2 eta) ** (used / capacity) with F = ``min_utility`` / (2 eta), the lowest utility per byte.
    """
    rise = math.log(2 * eta)
    full = [[math.exp(rise * int(used) / capacity) for used in ranks] for ranks in used_bytes]
    total: FloatArray = np.array(full).sum(0) * (min_utility / (2 * eta))
    return total


def compute_rewards(utility: float, price: FloatArray, used_bytes: IntArray, num_cells: int, eta: float) -> FloatArray:
    """Reward of a cell on each rank, [W]: its share of the snapshot's value to the rank, at least 0 by (8b).

    It is mu for the next snapshot.
    """
    if not num_cells:
        return np.zeros(len(price))
    worth = (utility / len(price) - price * used_bytes) / num_cells
    return np.maximum((math.log(2 * eta) - 1) * worth, 0.0) if 2 * eta > math.e else np.zeros(len(price))


ROW_WEIGHT = 1 << 20
"""Weight of a row that is always fetched. Weights are integers, so sums do not depend on the order."""


@dataclass(frozen=True, eq=False)
class WeightedLinks:
    """Symmetric weighted adjacency of a snapshot in CSR."""

    row_ptr: IntArray  # [n + 1] int64
    col: IntArray  # [m] int32
    weight: IntArray  # [m] int32

    @property
    def total(self) -> int:
        """Total weight of all links."""
        return int(self.weight.sum(dtype=np.int64)) // 2

    def utility(self, owner: IntArray) -> int:
        """Weight of links that are not cut: the communication saved."""
        local = owner[self.col] == np.repeat(owner, np.diff(self.row_ptr))
        return int(self.weight[local].sum(dtype=np.int64)) // 2


def weigh_links(snapshot: Snapshot) -> WeightedLinks:
    """Weight the links of a snapshot by W_uv = 1 / d_u + 1 / d_v (Zhang and Wu 2025, §3.4), up to common factors.

    A cell with d arcs samples each with equal probability, so an arc weighs 1 / d of its destination. An undirected
    edge is two arcs; parallel edges add up; self-loops weigh 0.
    """
    one = (ROW_WEIGHT // np.maximum(snapshot.in_degree, 1)).astype(np.int32)
    source, destination = snapshot.arcs()
    if snapshot.directed:
        return _symmetrize(source, destination, one)
    weight = np.repeat(one, snapshot.in_degree)
    weight += one[source]
    weight *= source != destination
    return _to_fixed_dtypes(snapshot.row_ptr, source, weight)


def _symmetrize(source: IntArray, destination: IntArray, one: IntArray) -> WeightedLinks:
    """Add every arc to the rows of both ends."""
    weight = one[destination].astype(np.int64) * (source != destination)  # sums of parallel edges may exceed int32
    ends = np.concatenate((destination, source)), np.concatenate((source, destination))
    links = sp.coo_array((np.concatenate((weight, weight)), ends), shape=(one.size, one.size)).tocsr()
    return _to_fixed_dtypes(links.indptr, links.indices, links.data)


def _to_fixed_dtypes(row_ptr: IntArray, col: IntArray, weight: IntArray) -> WeightedLinks:
    """Fixed dtypes and read-only, so that loops are compiled once."""
    arrays = row_ptr.astype(np.int64), col.astype(np.int32, copy=False), weight.astype(np.int32, copy=False)
    return WeightedLinks(*(read_only(array) for array in arrays))


BYTES_PER_FEATURE = 4  # float32


@dataclass(frozen=True)
class RowBytes:
    """Bytes that a rank stores for a cell: ``full`` if its node was not on the rank in the previous snapshot, else
    ``change``."""

    full: int
    change: int

    @classmethod
    def of(cls, snapshot: Snapshot, segments: int) -> RowBytes:
        """Rows have the columns of the features (1 without features); the longest segment changes."""
        columns = max(1, snapshot.features.shape[0]) if snapshot.features is not None else 1
        return cls(BYTES_PER_FEATURE * columns, BYTES_PER_FEATURE * -(-columns // segments))

    def bytes_if_new(self, window: int) -> IntArray:
        """Bytes of a node that is new on a rank and stays, in each snapshot while the first is stored, [window]."""
        return self.full + self.change * np.arange(window)

    def bytes_if_staying(self, window: int) -> IntArray:
        """Bytes of a node that was on the rank before: its row becomes full when it is the first of the window."""
        used = self.change * np.arange(1, window + 1)
        used[-1] += self.full - self.change
        return used


class WindowMemory:
    """Cells of every rank in each snapshot of a window, and how many of them stayed, from which bytes follow.

    In the first snapshot of a window all rows are full; in later ones the rows of nodes that changed ranks.
    """

    def __init__(self, window: int, num_ranks: int) -> None:
        self._window = window
        self._cells = np.zeros((0, num_ranks), np.int64)  # [m, W], latest snapshot last
        self._stayed = np.zeros((0, num_ranks), np.int64)

    def add(self, owner: IntArray, last: IntArray) -> None:
        """Add a snapshot with these owners, [n], whose nodes were on ranks ``last`` in the previous one."""
        num_ranks = self._cells.shape[1]
        cells = np.bincount(owner, minlength=num_ranks)[None]
        stayed = np.bincount(owner[owner == last], minlength=num_ranks)[None]
        self._cells = np.concatenate((self._cells, cells))[-self._window :]
        self._stayed = np.concatenate((self._stayed, stayed))[-self._window :]

    def forecast(self, rows: RowBytes, *, latest_is_current: bool) -> IntArray:
        """Bytes of the stored data on every rank, now and at each of the next snapshots, [window, W].

        ``latest_is_current``: now is the latest snapshot, else the one after it.
        """
        left = self._window + latest_is_current - 1 - np.arange(self._window)
        return np.stack([self.bytes_of_last(number, rows) for number in left.tolist()])

    def bytes_of_last(self, number: int, rows: RowBytes) -> IntArray:
        """Bytes of every rank, [W], when only the latest ``number`` snapshots are stored."""
        latest = slice(max(0, len(self._cells) - number), None)
        cells, stayed = self._cells[latest], self._stayed[latest]
        used = rows.full * cells.sum(0) - (rows.full - rows.change) * stayed[1:].sum(0)
        return np.asarray(used, np.int64)

    def state_dict(self) -> dict[str, Any]:
        return {"cells": self._cells.copy(), "stayed": self._stayed.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._cells, self._stayed = (np.array(state[name], np.int64) for name in ("cells", "stayed"))


def required_capacity(forecast: IntArray, last: IntArray, rows: RowBytes, slack: float = 1.0) -> int:
    """Bytes per rank with which nodes that were on ranks ``last``, [n], can always be placed.

    All nodes could stay; new nodes fit, since ranks have ``slack`` times an even share of the peak plus one row.
    ``forecast`` [window, W]: bytes of the stored data now and at each of the next snapshots.
    """
    window, num_ranks = forecast.shape
    staying = np.bincount(last[last != NO_RANK], minlength=num_ranks)
    num_new = len(last) - int(staying.sum())
    level = forecast[0] + rows.bytes_if_staying(window)[0] * staying
    total = forecast.sum(1) + rows.bytes_if_staying(window) * staying.sum() + rows.bytes_if_new(window) * num_new
    return max(int(level.max()), int(np.ceil(slack * (int(total.max()) / num_ranks))) + rows.full)


@dataclass(eq=False)
class SnapshotOwners:
    """Owners of a snapshot's cells, and free memory of ranks while cells move."""

    last: IntArray  # [n], rank in the previous snapshot
    rows: RowBytes
    free: IntArray  # [T, W], bytes now and at each of the next snapshots if all stay
    owner: IntArray  # [n]
    used: IntArray  # [W], bytes of this snapshot


class PriceBasedPartitioner(StreamingPartitioner):
    """Streaming partitioner of ``Online``."""

    def __init__(self, options: Online, num_ranks: int) -> None:
        self._options = options
        self._num_ranks = num_ranks
        self._last: IntArray = np.empty(0, np.int16)  # rank of each node in the previous snapshot, [N]
        self._memory = WindowMemory(options.window, num_ranks)
        self._rewards: FloatArray = np.zeros(num_ranks)
        self._min_utility_per_byte = math.inf  # over snapshots with any utility
        self._capacity = options.capacity or 0

    def place_next(self, snapshot: Snapshot) -> IntArray:
        """Assign the cells of a snapshot. If they do not fit, the state is unchanged."""
        everywhere = grow_to(self._last, snapshot)
        last, rows = everywhere[snapshot.nodes], RowBytes.of(snapshot, self._options.segments)
        forecast = self._memory.forecast(rows, latest_is_current=False)
        capacity = self._capacity
        if self._options.capacity is None:
            capacity = max(capacity, required_capacity(forecast, last, rows, self._options.slack))
        parts = self._base_partition(snapshot, last, rows, capacity - forecast)
        self._improve(parts, weigh_links(snapshot), forecast, capacity)
        self._last = np.full_like(everywhere, NO_RANK)
        self._last[snapshot.nodes] = parts.owner
        self._capacity = capacity
        return parts.owner

    def state_dict(self) -> dict[str, Any]:
        return {
            "last": self._last.copy(),
            "memory": self._memory.state_dict(),
            "rewards": self._rewards.copy(),
            "min_utility_per_byte": self._min_utility_per_byte,
            "capacity": self._capacity,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._last = np.array(state["last"], np.int16)
        self._memory.load_state_dict(state["memory"])
        self._rewards = np.array(state["rewards"], np.float64)
        self._min_utility_per_byte, self._capacity = float(state["min_utility_per_byte"]), int(state["capacity"])

    def _base_partition(self, snapshot: Snapshot, last: IntArray, rows: RowBytes, free: IntArray) -> SnapshotOwners:
        """Base partition (Algorithm 1)."""
        new, staying = rows.bytes_if_new(len(free)), rows.bytes_if_staying(len(free))
        room, owner = free[0].copy(), np.empty_like(last)
        failed = assign_base_partition(last, int(new[0]), int(staying[0]), room, owner)
        if failed >= 0:
            raise self._capacity_error(snapshot, failed, last, rows, free, room)
        stayed = np.bincount(owner[owner == last], minlength=self._num_ranks)
        came = np.bincount(owner, minlength=self._num_ranks) - stayed
        later = free - np.outer(staying, stayed) - np.outer(new, came)
        return SnapshotOwners(last, rows, later, owner, free[0] - room)

    def _improve(self, parts: SnapshotOwners, links: WeightedLinks, forecast: IntArray, capacity: int) -> None:
        """Sweep until no cell moves (Algorithm 2); then update prices, rewards and memory for the next snapshot."""
        window, eta, rows, earlier_bytes = self._options.window, self._options.eta, parts.rows, int(forecast[0].sum())
        arrays = links.row_ptr, links.col, links.weight
        sizes = rows.bytes_if_new(window), rows.bytes_if_staying(window)
        near = weights_by_rank(*arrays, parts.owner, self._num_ranks)
        min_utility = self._min_utility_per_byte
        if not math.isfinite(min_utility):
            min_utility = _utility_per_byte(internal_weight(near, parts.owner), earlier_bytes, parts)
        price = compute_prices(forecast, capacity, min_utility, eta)
        for _ in _sweeps_until_cycle(self._options.sweeps if self._num_ranks > 1 else 0, parts.owner):
            extra = compute_rewards(internal_weight(near, parts.owner), price, parts.used, len(parts.owner), eta)
            pays = self._payoffs(extra, price, int(sizes[0][0]), int(sizes[1][0]))
            if not sweep(*arrays, parts.last, *sizes, *pays, near, parts.free, parts.used, parts.owner):
                break
        self._memory.add(parts.owner, parts.last)
        utility = internal_weight(near, parts.owner)
        price = compute_prices(self._memory.forecast(rows, latest_is_current=True), capacity, min_utility, eta)
        self._rewards = compute_rewards(utility, price, parts.used, len(parts.owner), eta)
        if utility:
            self._min_utility_per_byte = min(
                self._min_utility_per_byte, _utility_per_byte(utility, earlier_bytes, parts)
            )

    def _payoffs(
        self, extra: FloatArray, price: FloatArray, new: int, staying: int
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Payoffs of a new node and of a staying node, and the price per byte used of the snapshot, [W] each."""
        if self._options.price == "total":
            return extra, extra - self._rewards, price
        return extra - price * new, extra - self._rewards - price * staying, np.zeros(self._num_ranks)

    def _capacity_error(
        self, snapshot: Snapshot, cell: int, last: IntArray, rows: RowBytes, free: IntArray, room: IntArray
    ) -> InputError:
        """Name the rank and snapshot, the missing bytes, and the capacity that suffices."""
        rank = int(room.argmax())
        required = required_capacity(self._capacity - free, last, rows)
        return InputError(
            f"snapshot {snapshot.t} ({snapshot.time}) does not fit: rank {rank} has the most free memory, and lacks "
            f"{rows.full - int(room[rank]):,} bytes for the {rows.full:,} of node {int(snapshot.nodes[cell])}; "
            f"{int(free[0, rank]):,} of its capacity of {self._capacity:,} bytes were free for this snapshot. "
            f"Give each of the {self._num_ranks} ranks {required:,} bytes, or use more ranks or a shorter window"
        )


def _sweeps_until_cycle(sweeps: int, owner: IntArray) -> Iterator[None]:
    """Yield once per sweep. A sweep depends on the owners only: if they repeat, whole cycles are skipped (Brent
    1980)."""
    seen, ago, next_look = owner.copy(), 0, 1
    while sweeps:
        yield
        sweeps, ago = sweeps - 1, ago + 1
        if np.array_equal(owner, seen):
            sweeps, ago = sweeps % ago, 0
        elif ago == next_look:
            seen, ago, next_look = owner.copy(), 0, 2 * next_look


def _utility_per_byte(utility: int, earlier_bytes: int, parts: SnapshotOwners) -> float:
    """Utility of a snapshot per byte of its window."""
    return utility / max(earlier_bytes + int(parts.used.sum()), 1)
