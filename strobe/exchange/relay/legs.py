"""Legs of sequences that change ranks, computed from cell owners alone.

A *leg* is a maximal run of a sequence's cells in a window that one rank owns. The state at its end goes to the rank of
the next leg. After the window it stays on the rank of the last leg, its *home*, until the node is present again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strobe.comm import NO_RANK
from strobe.ops.sparse.csr import IntArray

MIN_CELLS, MIN_CELLS_ON_GPU = 512, 1 << 18
"""Minimum cells per rank and window of a pipeline group: smaller groups cost more in messages than they save, and leave
multiprocessors of a GPU idle."""


@dataclass(frozen=True, eq=False)
class Legs:
    """The legs of one rank in a window, ascending by node and then by time.

    ``source`` is the rank of the previous leg and ``target`` that of the next, NO_RANK if the leg is the first or last
    of the sequence in the window; ``source_wave`` and ``target_wave`` are the waves of these legs. Legs of ``wave`` w
    wait for those of earlier waves; ``group`` divides nodes into ranges that pass through the waves as a pipeline.
    ``is_acyclic``: sequences visit ranks in one order, so that a rank has at most one leg per node, and all its legs
    have the same wave.
    """

    node: IntArray  # [L]
    source: IntArray  # [L]
    target: IntArray  # [L]
    wave: IntArray  # [L]
    source_wave: IntArray  # [L]
    target_wave: IntArray  # [L]
    group: IntArray  # [L]
    cell_leg: list[IntArray]  # leg of each of the rank's cells, per snapshot
    num_waves: int
    group_position: IntArray  # [groups], in the pipeline
    is_acyclic: bool
    moves: StateMoves


@dataclass(frozen=True, eq=False)
class StateMoves:
    """How states of earlier windows reach the legs that continue from them.

    The rank stores the states of the nodes whose home it is, ascending. ``send`` lists stored rows by receiver;
    ``receive`` the legs that continue from each sender's rows; ``local`` pairs (stored row, leg). After the window the
    rank stores rows ``final_rows`` of the old states followed by its legs' final states.
    """

    num_states: int
    send: Mapping[int, IntArray]
    receive: Mapping[int, IntArray]
    local: tuple[IntArray, IntArray]
    final_rows: IntArray


def find_legs(
    rank: int,
    nodes: Sequence[IntArray],
    owners: Sequence[IntArray],
    home: npt.NDArray[np.int16],
    max_groups: int,
    num_ranks: int,
    min_cells: int,
) -> Legs:
    """Compute the legs of a rank.

    Args:
        rank: the rank.
        nodes: present nodes of each snapshot of the window, ascending.
        owners: owner of each present node's cell; NO_RANK for cells that are left out.
        home: rank that stores each node's state before the window, [N].
        max_groups: maximum number of pipeline groups.
        num_ranks: number of ranks.
        min_cells: minimum cells per rank of a pipeline group.
    """
    builder = _LegBuilder(rank, len(home), num_ranks)
    for present, owner in zip(nodes, owners, strict=True):
        builder.add_snapshot(present[owner >= 0], owner[owner >= 0])
    node, source, wave = np.concatenate([np.empty((0, 3), np.int64), *builder.starts]).T
    leg, target_of = np.concatenate([np.empty((0, 2), np.int64), *builder.departures]).T
    target = np.full(len(node), NO_RANK, np.int64)
    target[leg] = target_of
    order = np.lexsort((wave, node))
    place = np.empty(len(node), np.int64)
    place[order] = np.arange(len(node))
    node, source, target, wave = node[order], source[order], target[order], wave[order]
    levels = rank_levels(builder.transitions)
    cuts = group_cuts(builder.count, max_groups, num_ranks, min_cells)
    after = np.where(builder.current_owner >= 0, builder.current_owner, home)
    return Legs(
        node=node,
        source=source,
        target=target,
        wave=wave if levels is None else np.full(len(node), levels[rank]),
        source_wave=wave - 1 if levels is None else levels[source],
        target_wave=wave + 1 if levels is None else levels[target],
        group=np.searchsorted(cuts, node, side="right"),
        cell_leg=[place[legs] for legs in builder.cell_leg],
        num_waves=int(builder.legs.max(initial=1)) if levels is None else int(levels.max()) + 1,
        group_position=_order_groups(_count_cells(nodes, owners, cuts, num_ranks), levels),
        is_acyclic=levels is not None,
        moves=_find_moves(rank, node, source, target, home, builder.first_owner, after),
    )


class _LegBuilder:
    """Collects legs snapshot by snapshot, numbered in the order they begin."""

    def __init__(self, rank: int, num_nodes: int, num_ranks: int) -> None:
        self.rank = rank
        self.current_owner = np.full(num_nodes, NO_RANK, np.int16)  # owner of the last cell so far
        self.first_owner = np.full(num_nodes, NO_RANK, np.int16)  # owner of the first
        self.count = np.zeros(num_nodes, np.int64)  # cells so far
        self.legs = np.zeros(num_nodes, np.int64)  # legs so far, on any rank
        self.transitions = np.zeros((num_ranks, num_ranks), bool)  # whether any sequence moves between two ranks
        self.starts: list[IntArray] = []  # (node, source, wave) of this rank's legs
        self.departures: list[IntArray] = []  # (leg, target) of legs with a next leg
        self.cell_leg: list[IntArray] = []
        self._current_leg = np.zeros(num_nodes, np.int64)  # current leg of each node on this rank
        self._num_legs = 0

    def add_snapshot(self, present: IntArray, owner: IntArray) -> None:
        before = self.current_owner[present]
        new = owner != before
        moved = new & (before >= 0)
        self.transitions[before[moved], owner[moved]] = True
        self.legs[present[new]] += 1
        self.first_owner[present[before < 0]] = owner[before < 0]
        leaves = new & (before == self.rank)
        self.departures.append(np.stack([self._current_leg[present[leaves]], owner[leaves]], axis=1).astype(np.int64))
        own = owner == self.rank
        starts = present[own & new]
        self._current_leg[starts] = self._num_legs + np.arange(len(starts))
        self._num_legs += len(starts)
        self.starts.append(np.stack([starts, before[own & new], self.legs[starts] - 1], axis=1).astype(np.int64))
        self.cell_leg.append(self._current_leg[present[own]])
        self.current_owner[present] = owner
        self.count[present] += 1


def rank_levels(sends_to: npt.NDArray[np.bool_]) -> IntArray | None:
    """Topological level of each rank, [W], if sequences visit ranks in one order; None if the order has a cycle."""
    waits = sends_to.sum(0)
    levels = np.zeros(len(sends_to), np.int64)
    ready, num_done, level = np.flatnonzero(waits == 0), 0, 0
    while len(ready):
        levels[ready] = level
        num_done, level = num_done + len(ready), level + 1
        released = sends_to[ready].sum(0)
        waits -= released
        ready = np.flatnonzero((waits == 0) & (released > 0))
    return levels if num_done == len(sends_to) else None


def min_group_cells(device_type: str) -> int:
    """Minimum cells per rank and window of a pipeline group on a kind of device."""
    return MIN_CELLS_ON_GPU if device_type == "cuda" else MIN_CELLS


def num_groups(cells: int, max_groups: int, num_ranks: int, min_cells: int) -> int:
    """Number of pipeline groups for a window of ``cells`` cells, at least ``min_cells`` per rank each."""
    return max(1, min(max_groups, cells // (min_cells * num_ranks)))


def group_cuts(count: IntArray, max_groups: int, num_ranks: int, min_cells: int) -> IntArray:
    """First nodes of all groups but the first, balanced by cells."""
    total = np.cumsum(count)
    cells = int(total[-1]) if len(total) else 0
    number = num_groups(cells, max_groups, num_ranks, min_cells)
    ends = cells * np.arange(1, number) / number
    return np.unique(np.searchsorted(total, ends, side="left") + 1) if number > 1 else np.empty(0, np.int64)


def _count_cells(nodes: Sequence[IntArray], owners: Sequence[IntArray], cuts: IntArray, num_ranks: int) -> IntArray:
    """Cells per group and rank, [groups, ranks]."""
    loads = np.zeros((len(cuts) + 1) * num_ranks, np.int64)
    for present, owner in zip(nodes, owners, strict=True):
        part = owner >= 0
        group = np.searchsorted(cuts, present[part], side="right")
        loads += np.bincount(group * num_ranks + owner[part], minlength=len(loads))
    return loads.reshape(-1, num_ranks)


def _order_groups(loads: IntArray, levels: IntArray | None) -> IntArray:
    """Position of each group in the pipeline, by Johnson's rule for two machines in series (1954), which is optimal.

    Groups with less work on the first machine go first, in ascending order of it; the others follow, in descending
    order of their work on the second. Ranks of the lower half of levels form the first machine. Without levels groups
    keep their order.
    """
    order = np.arange(len(loads))
    if levels is not None and levels.any():
        early = levels * 2 <= levels.max()
        before, after = loads[:, early].sum(1), loads[:, ~early].sum(1)
        lead = before < after
        order = np.concatenate(
            [
                order[lead][np.argsort(before[lead], kind="stable")],
                order[~lead][np.argsort(-after[~lead], kind="stable")],
            ]
        )
    position = np.empty(len(loads), np.int64)
    position[order] = np.arange(len(loads))
    return position


def _find_moves(
    rank: int,
    node: IntArray,
    source: IntArray,
    target: IntArray,
    home: IntArray,
    first_owner: IntArray,
    after: IntArray,
) -> StateMoves:
    stored = np.flatnonzero(home == rank)
    target_rank = first_owner[stored]
    send = {int(to): np.flatnonzero(target_rank == to) for to in np.unique(target_rank) if to not in (rank, NO_RANK)}
    first = np.flatnonzero(source == NO_RANK)  # legs that begin in this window, ascending by node
    source_rank = home[node[first]]
    receive = {int(src): first[source_rank == src] for src in np.unique(source_rank) if src not in (rank, NO_RANK)}
    local = first[source_rank == rank]
    last = np.flatnonzero(target == NO_RANK)
    # Stored after the window, ascending by node: old rows of absent nodes, or final states of legs.
    nodes = np.flatnonzero(after == rank)
    final = np.searchsorted(node[last], nodes)
    is_leg = (final < len(last)) & (node[last[np.minimum(final, len(last) - 1)]] == nodes) if len(last) else nodes < 0
    rows = np.searchsorted(stored, nodes)
    rows[is_leg] = len(stored) + last[final[is_leg]]
    return StateMoves(len(stored), send, receive, (np.searchsorted(stored, node[local]), local), rows)
