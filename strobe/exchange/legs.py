"""Where sequences change ranks, decided from who owns which cell: no messages, no tensors of a model.

A *leg* is a stretch of a sequence's cells in a window that one rank owns without a break. The state at its end goes to
the rank of the next leg; at the end of the window it stays where the last leg was, its *home*, until the node is seen
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    num_groups: int
    turn: IntArray  # [groups], which of them goes first, second, …
    in_turn: bool
    moves: Moves

    @property
    def rows_cut(self) -> int:
        """States that this rank sends within the window."""
        return int((self.target != NOBODY).sum())


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
) -> tuple[Legs, npt.NDArray[np.int16]]:
    """The legs of a rank, and the home of every node after the window.

    Args:
        rank: whose legs.
        nodes: present nodes of each snapshot of the window, ascending.
        owners: the owner of each of their cells; NOBODY for cells that take no part.
        home: where each node's state is before the window, [N].
        groups: how many groups at most.
        num_ranks: all ranks.
    """
    num_nodes = len(home)
    now = np.full(num_nodes, NOBODY, np.int16)  # owner of the last cell so far
    begin = np.full(num_nodes, NOBODY, np.int16)  # owner of the first
    count = np.zeros(num_nodes, np.int64)
    legs_so_far = np.zeros(num_nodes, np.int64)
    at = np.zeros(num_nodes, np.int64)  # number of the leg that this rank is at
    crossed = np.zeros((num_ranks, num_ranks), bool)
    found: list[IntArray] = []  # node, source, wave of new legs
    left: list[IntArray] = []  # leg, target
    leg_of: list[IntArray] = []
    num_legs = 0
    for present, owner in zip(nodes, owners, strict=True):
        part = owner >= 0
        present, owner = (present, owner) if part.all() else (present[part], owner[part])
        before = now[present]
        new = owner != before
        legs_so_far[present[new]] += 1
        crossed[before[new & (before >= 0)], owner[new & (before >= 0)]] = True
        begin[present[before < 0]] = owner[before < 0]
        leaves = new & (before == rank)
        left.append(np.stack([at[present[leaves]], owner[leaves]], axis=1).astype(np.int64))
        mine = owner == rank
        starts = present[mine & new]
        at[starts] = num_legs + np.arange(len(starts))
        num_legs += len(starts)
        found.append(np.stack([starts, before[mine & new], legs_so_far[starts] - 1], axis=1).astype(np.int64))
        leg_of.append(at[present[mine]])
        now[present] = owner
        count[present] += 1
    node, source, wave = np.concatenate([np.empty((0, 3), np.int64), *found]).T
    target = np.full(num_legs, NOBODY, np.int64)
    for leaving in left:
        target[leaving[:, 0]] = leaving[:, 1]
    order = np.lexsort((wave, node))
    place = np.empty(num_legs, np.int64)
    place[order] = np.arange(num_legs)
    levels = _levels(crossed)
    num_waves = int(legs_so_far.max(initial=1)) if levels is None else int(levels.max()) + 1
    wave = wave[order] if levels is None else np.full(num_legs, levels[rank])
    source, target = source[order], target[order]
    cuts = _cuts(count, groups, num_ranks)
    node = node[order]
    after = np.where(now >= 0, now, home)
    legs = Legs(
        node=node,
        source=source,
        target=target,
        wave=wave,
        source_wave=wave - 1 if levels is None else levels[source],
        group=np.searchsorted(cuts, node, side="right"),
        leg_of=[place[legs] for legs in leg_of],
        num_waves=num_waves,
        num_groups=len(cuts) + 1,
        turn=_turns(_loads(nodes, owners, cuts, num_ranks), levels),
        in_turn=levels is not None,
        moves=_moves(rank, node, source, target, home, begin, after),
    )
    return legs, after.astype(np.int16)


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


def _cuts(count: IntArray, groups: int, num_ranks: int) -> IntArray:
    """Nodes at which groups begin, but for the first: about equally many cells in each."""
    total = np.cumsum(count)
    cells = int(total[-1]) if len(total) else 0
    number = max(1, min(groups, cells // (MIN_CELLS * num_ranks)))
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


def home_before(snapshots: Iterable[tuple[IntArray, IntArray]], num_nodes: int) -> npt.NDArray[np.int16]:
    """Where each node's state is after (nodes, owners) of some snapshots from the beginning of time."""
    home = np.full(num_nodes, NOBODY, np.int16)
    for nodes, owners in snapshots:
        home[nodes] = owners
    return home
