"""Where sequences change ranks, decided from who owns which cell: no messages, no tensors of a model.

A *leg* is a stretch of a sequence's cells in a window that one rank owns without a break. The state at its end goes to
the rank of the next leg; at the end of the window it stays where the last leg was, its *home*, until the node is seen
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strobe.ops.csr import IntArray

NOBODY = -1
MIN_CELLS = 512
"""A group has at least so many cells per rank and window: smaller ones cost more to send than they keep ranks busy."""


@dataclass(frozen=True, eq=False)
class Legs:
    """The legs of one rank in a window, ascending by node and then by time.

    Rank ``source`` had the cell before the leg, NOBODY where the leg is the sequence's first in the window; rank
    ``target`` has the next, NOBODY where it is the last. Legs of ``wave`` w wait for those of earlier waves;
    ``group`` cuts nodes into stretches that follow each other through the waves. ``in_turn``: sequences visit ranks
    in one order, so that a rank has one leg of a node at most and all its legs are of one wave.
    """

    node: IntArray  # [L]
    source: IntArray  # [L]
    target: IntArray  # [L]
    wave: IntArray  # [L]
    source_wave: IntArray  # [L], of the leg before
    group: IntArray  # [L]
    leg_of: list[IntArray]  # for each snapshot, the leg of each of the rank's cells
    num_waves: int
    turn: IntArray  # [groups], which of them goes first, second, …
    in_turn: bool
    moves: Moves

    @property
    def rows_cut(self) -> int:
        """States that this rank sends within the window."""
        return int((self.target != NOBODY).sum())

    @property
    def rows_heard(self) -> int:
        """States that it gets from others."""
        return int((self.source != NOBODY).sum())


@dataclass(frozen=True, eq=False)
class Moves:
    """How states carried from earlier windows come to the legs that go on from them.

    The rank holds the states of the nodes whose home it is, ascending. ``send`` lists held rows by receiver;
    ``arrive`` the legs that get what each sender sends; ``local`` pairs (held row, leg). Afterwards the rank holds
    rows ``kept`` of its old ones followed by its legs' final states.
    """

    num_held: int
    send: Mapping[int, IntArray]
    arrive: Mapping[int, IntArray]
    local: tuple[IntArray, IntArray]
    kept: IntArray


def find_legs(
    rank: int,
    nodes: Sequence[IntArray],
    owners: Sequence[IntArray],
    home: npt.NDArray[np.int16],
    groups: int,
    num_ranks: int,
) -> Legs:
    """The legs of a rank.

    Args:
        rank: whose legs.
        nodes: present nodes of each snapshot of the window, ascending.
        owners: the owner of each of their cells; NOBODY for cells that take no part.
        home: where each node's state is before the window, [N].
        groups: how many groups at most.
        num_ranks: all ranks.
    """
    walk = _Walk(rank, len(home), num_ranks)
    for present, owner in zip(nodes, owners, strict=True):
        walk.on(present[owner >= 0], owner[owner >= 0])
    node, source, wave = np.concatenate([np.empty((0, 3), np.int64), *walk.begun]).T
    leg, target_of = np.concatenate([np.empty((0, 2), np.int64), *walk.left]).T
    target = np.full(len(node), NOBODY, np.int64)
    target[leg] = target_of
    order = np.lexsort((wave, node))
    place = np.empty(len(node), np.int64)
    place[order] = np.arange(len(node))
    node, source, target, wave = node[order], source[order], target[order], wave[order]
    levels = _levels(walk.crossed)
    cuts = group_cuts(walk.count, groups, num_ranks)
    after = np.where(walk.now >= 0, walk.now, home)
    return Legs(
        node=node,
        source=source,
        target=target,
        wave=wave if levels is None else np.full(len(node), levels[rank]),
        source_wave=wave - 1 if levels is None else levels[source],
        group=np.searchsorted(cuts, node, side="right"),
        leg_of=[place[legs] for legs in walk.leg_of],
        num_waves=int(walk.legs.max(initial=1)) if levels is None else int(levels.max()) + 1,
        turn=_turns(_loads(nodes, owners, cuts, num_ranks), levels),
        in_turn=levels is not None,
        moves=_moves(rank, node, source, target, home, walk.begin, after),
    )


class _Walk:
    """What one pass over the snapshots of a window finds: legs are numbered as they begin."""

    def __init__(self, rank: int, num_nodes: int, num_ranks: int) -> None:
        self.rank = rank
        self.now = np.full(num_nodes, NOBODY, np.int16)  # owner of the last cell so far
        self.begin = np.full(num_nodes, NOBODY, np.int16)  # owner of the first
        self.count = np.zeros(num_nodes, np.int64)  # cells so far
        self.legs = np.zeros(num_nodes, np.int64)  # legs so far, on any rank
        self.crossed = np.zeros((num_ranks, num_ranks), bool)  # whether a sequence goes from one rank to another
        self.begun: list[IntArray] = []  # (node, source, wave) of this rank's legs
        self.left: list[IntArray] = []  # (leg, target) of those that go on elsewhere
        self.leg_of: list[IntArray] = []
        self._at = np.zeros(num_nodes, np.int64)  # the leg that this rank is at
        self._num_legs = 0

    def on(self, present: IntArray, owner: IntArray) -> None:
        """The next snapshot."""
        before = self.now[present]
        new = owner != before
        moved = new & (before >= 0)
        self.crossed[before[moved], owner[moved]] = True
        self.legs[present[new]] += 1
        self.begin[present[before < 0]] = owner[before < 0]
        leaves = new & (before == self.rank)
        self.left.append(np.stack([self._at[present[leaves]], owner[leaves]], axis=1).astype(np.int64))
        mine = owner == self.rank
        starts = present[mine & new]
        self._at[starts] = self._num_legs + np.arange(len(starts))
        self._num_legs += len(starts)
        self.begun.append(np.stack([starts, before[mine & new], self.legs[starts] - 1], axis=1).astype(np.int64))
        self.leg_of.append(self._at[present[mine]])
        self.now[present] = owner
        self.count[present] += 1


def _levels(crossed: npt.NDArray[np.bool_]) -> IntArray | None:
    """How late each rank comes if sequences visit ranks in one order, so that a rank computes all its legs at once;
    None where they go round in circles."""
    num_ranks = len(crossed)
    levels = np.zeros(num_ranks, np.int64)
    for _ in range(num_ranks):
        reached = np.where(crossed, levels[:, None] + 1, 0).max(axis=0)
        if (reached <= levels).all():
            return levels
        levels = np.maximum(levels, reached)
    return None


def num_groups(cells: int, groups: int, num_ranks: int) -> int:
    """How many groups so many cells really make, if so many are asked for: tiny ones are not worth their messages."""
    return max(1, min(groups, cells // (MIN_CELLS * num_ranks)))


def group_cuts(count: IntArray, groups: int, num_ranks: int) -> IntArray:
    """Nodes at which groups begin, but for the first: about equally many cells in each."""
    total = np.cumsum(count)
    cells = int(total[-1]) if len(total) else 0
    number = num_groups(cells, groups, num_ranks)
    aims = cells * np.arange(1, number) / number
    return np.unique(np.searchsorted(total, aims, side="left") + 1) if number > 1 else np.empty(0, np.int64)


def _loads(nodes: Sequence[IntArray], owners: Sequence[IntArray], cuts: IntArray, num_ranks: int) -> IntArray:
    """Cells of every group on every rank, [groups, ranks]."""
    loads = np.zeros((len(cuts) + 1) * num_ranks, np.int64)
    for present, owner in zip(nodes, owners, strict=True):
        part = owner >= 0
        group = np.searchsorted(cuts, present[part], side="right")
        loads += np.bincount(group * num_ranks + owner[part], minlength=len(loads))
    return loads.reshape(-1, num_ranks)


def _turns(loads: IntArray, levels: IntArray | None) -> IntArray:
    """When each group has its turn: so that ranks that come late do not wait for those that come early, nor the other
    way round on the way back.

    Johnson's rule for two machines in a row (1954), which is optimal: groups that take less on the first go first,
    the shortest there leading; the others follow, the shortest on the second last. Ranks of the earlier half of
    levels are one machine, those of the later half the other. Without levels groups go in order.
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
    turn = np.empty(len(loads), np.int64)
    turn[order] = np.arange(len(loads))
    return turn


def _moves(
    rank: int, node: IntArray, source: IntArray, target: IntArray, home: IntArray, begin: IntArray, after: IntArray
) -> Moves:
    held = np.flatnonzero(home == rank)
    going = begin[held]
    send = {int(to): np.flatnonzero(going == to) for to in np.unique(going) if to not in (rank, NOBODY)}
    first = np.flatnonzero(source == NOBODY)  # legs that begin in this window, ascending by node
    came = home[node[first]]
    arrive = {int(sender): first[came == sender] for sender in np.unique(came) if sender not in (rank, NOBODY)}
    here = first[came == rank]
    last = np.flatnonzero(target == NOBODY)
    # Held afterwards, ascending by node: old rows that nobody asked for, or the final state of a leg.
    holds = np.flatnonzero(after == rank)
    final = np.searchsorted(node[last], holds)
    is_leg = (final < len(last)) & (node[last[np.minimum(final, len(last) - 1)]] == holds) if len(last) else holds < 0
    kept = np.searchsorted(held, holds)
    kept[is_leg] = len(held) + last[final[is_leg]]
    return Moves(len(held), send, arrive, (np.searchsorted(held, node[here]), here), kept)
