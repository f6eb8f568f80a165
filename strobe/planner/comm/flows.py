"""Rows exchanged between all ranks, counted from cell owners without building local partitions, and relay schedules.

Makes one pass over the snapshots of a window, with arrays over the cells or arcs of one snapshot and over nodes.
``LocalPartition`` derives the same exchanges for one rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strobe.exchange.relay.legs import NO_RANK, group_cuts
from strobe.ops.sparse.csr import FloatArray, IntArray, distinct
from strobe.view import Owners
from strobe.view.partition.local import Homes, Reads

RowMoves = tuple[IntArray, IntArray]
"""Source and target rank of every row. Rows with source ``NO_RANK`` or equal ranks are not sent."""


@dataclass(frozen=True, eq=False)
class RowFlow:
    """Rows and messages of every rank in one forward exchange, [W] each."""

    rows_sent: IntArray
    rows_received: IntArray
    messages_sent: IntArray
    messages_received: IntArray

    @property
    def backward(self) -> RowFlow:
        """The exchange of gradients."""
        return RowFlow(self.rows_received, self.rows_sent, self.messages_received, self.messages_sent)


class RowCounter:
    """Accumulates rows sent and received per rank, and which rank sends to which."""

    def __init__(self, num_ranks: int) -> None:
        self.sent, self.received = np.zeros((2, num_ranks), np.int64)
        self.sends_to = np.zeros((num_ranks, num_ranks), bool)

    def add(self, rows: RowMoves) -> None:
        source, target = _sent_rows(rows)
        self.sent += np.bincount(source, minlength=len(self.sends_to))
        self.received += np.bincount(target, minlength=len(self.sends_to))
        self.sends_to[source, target] = True


def window_flow(rows: Iterable[RowMoves], num_ranks: int) -> RowFlow:
    """Count one exchange for all snapshots of a window: one message per pair of ranks."""
    counter = RowCounter(num_ranks)
    for each in rows:
        counter.add(each)
    return RowFlow(counter.sent, counter.received, counter.sends_to.sum(1), counter.sends_to.sum(0))


def snapshot_flows(rows: Iterable[RowMoves], num_ranks: int) -> list[RowFlow]:
    """Count one exchange per snapshot."""
    flows = []
    for each in rows:
        source, target = _sent_rows(each)
        pairs = unique_below(source.astype(np.int64) * num_ranks + target, num_ranks**2)
        ends = source, target, pairs // num_ranks, pairs % num_ranks
        flows.append(RowFlow(*(np.bincount(end, minlength=num_ranks) for end in ends)))
    return flows


def sum_flows(flows: list[RowFlow]) -> RowFlow:
    """Sum several exchanges."""
    ends = ((each.rows_sent, each.rows_received, each.messages_sent, each.messages_received) for each in flows)
    return RowFlow(*(np.sum(end, axis=0) for end in zip(*ends, strict=True)))


def halo_rows(owners: Owners, reads: Reads) -> Iterator[RowMoves]:
    """Yield the halo rows of each snapshot: one per cell and remote rank that reads it."""
    for t, owner in zip(owners.times, owners, strict=True):
        snapshot = owners.graph[t]
        read, reader = snapshot.arcs() if reads == "in" else snapshot.arcs()[::-1]
        target, source = owner[reader], owner[read]
        remote = target != source
        if owners.cell_mask is not None:
            remote &= (target != NO_RANK) & (source != NO_RANK)
        pairs = target[remote].astype(np.int64) * len(owner) + read[remote]
        target, position = np.divmod(unique_below(pairs, owners.partition.num_ranks * len(owner)), max(len(owner), 1))
        yield owner[position], target


def state_rows(owners: Owners, home: Homes) -> Iterator[RowMoves]:
    """Yield the states to move to the owner of a node's next cell before each snapshot; ``home`` has them at first."""
    for nodes, owner, before in node_visits(owners):
        yield np.where(before == NO_RANK, home[nodes], before), owner


def carry_rows(owners: Owners, home: Homes) -> Iterator[RowMoves]:
    """Yield the states of an earlier window to move to the owner of a node's first cell."""
    for nodes, owner, before in node_visits(owners):
        first = before == NO_RANK
        yield home[nodes[first]], owner[first]


def shuffle_rows(owners: Owners) -> Iterator[RowMoves]:
    """Yield the cells to move to the owners of their sequences."""
    sequence_owner = owners.partition.sequence_owner
    assert sequence_owner is not None  # set by with_sequences
    for nodes, owner in _active_nodes(owners):
        yield owner, sequence_owner[nodes]


def relay_flow(owners: Owners, groups: int) -> tuple[RowFlow, int]:
    """Count the states relayed at cuts within a window; also return the most legs of a sequence, 1 without cuts.

    A message has the states of one group of nodes and one wave of legs; its key encodes group, ranks and wave.
    """
    num_ranks, length = owners.partition.num_ranks, max(len(owners), 1)
    counter = RowCounter(num_ranks)
    legs = np.ones(owners.graph.num_nodes, np.int64)  # of every sequence so far
    borders = group_cuts(_sequence_lengths(owners), groups, num_ranks)
    message_keys: list[IntArray] = [np.empty(0, np.int64)]
    for nodes, owner, before in node_visits(owners):
        cut = (before != NO_RANK) & (before != owner)
        node, source, target = nodes[cut], before[cut], owner[cut]
        counter.add((source, target))
        pair = (np.searchsorted(borders, node, side="right") * num_ranks + source) * num_ranks + target
        message_keys.append(unique_below(pair * length + legs[node], groups * num_ranks**2 * length))
        legs[node] += 1
    keys = np.concatenate(message_keys)
    if rank_levels(counter.sends_to) is not None:
        keys -= keys % length  # all legs of a rank in a group are of one wave
    pair = distinct(keys) // length
    sent, received = (
        np.bincount(end, minlength=num_ranks) for end in (pair // num_ranks % num_ranks, pair % num_ranks)
    )
    return RowFlow(counter.sent, counter.received, sent, received), int(legs.max(initial=1))


def unique_below(keys: IntArray, limit: int) -> IntArray:
    """Return distinct keys below ``limit`` in ascending order; dense keys are not sorted but marked."""
    if limit > 4 * len(keys):
        return distinct(keys)
    present = np.zeros(limit, bool)
    present[keys] = True
    return np.flatnonzero(present)


def _sent_rows(rows: RowMoves) -> RowMoves:
    source, target = rows
    sent = (source != target) & (source != NO_RANK)
    return source[sent], target[sent]


def node_visits(owners: Owners) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    """Yield for each snapshot its nodes, their owners, and the owners of their previous cells (or ``NO_RANK``)."""
    current = np.full(owners.graph.num_nodes, NO_RANK, np.int16)
    for nodes, owner in _active_nodes(owners):
        yield nodes, owner, current[nodes]
        current[nodes] = owner


def rank_levels(sends_to: npt.NDArray[np.bool_]) -> IntArray | None:
    """Return the wave of each rank, [W], if sequences visit ranks in one order, so that a rank has at most one leg of
    each sequence; None if the order has cycles."""
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


def _active_nodes(owners: Owners) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield for each snapshot the nodes of computed cells, and their owners."""
    for t, owner in zip(owners.times, owners, strict=True):
        nodes = owners.graph[t].nodes
        if owners.cell_mask is not None:
            nodes, owner = nodes[owner != NO_RANK], owner[owner != NO_RANK]
        yield nodes, owner


def _sequence_lengths(owners: Owners) -> IntArray:
    """Count the cells of each sequence in the window, [N]."""
    count = np.zeros(owners.graph.num_nodes, np.int64)
    for nodes, _ in _active_nodes(owners):
        count[nodes] += 1  # a node is in a snapshot once
    return count


def cells_in_waves(owners: Owners) -> tuple[IntArray, bool]:
    """Count the cells of every wave and rank of a window, [V, W]: wave k waits for states of wave k - 1.

    Also return whether sequences visit ranks in one order, so that all cells of a rank are in one wave.
    """
    width = owners.partition.num_ranks
    wave = np.zeros(owners.graph.num_nodes, np.int64)
    sends_to = np.zeros((width, width), bool)
    counts = np.zeros(width, np.int64)
    for nodes, owner, before in node_visits(owners):
        moved = (before != NO_RANK) & (before != owner)
        sends_to[before[moved], owner[moved]] = True
        wave[nodes] += moved
        more = np.bincount(wave[nodes] * width + owner, minlength=len(counts))
        more[: len(counts)] += counts
        counts = more
    level = rank_levels(sends_to)
    cells = np.pad(counts, (0, -len(counts) % width)).reshape(-1, width)
    if level is None:
        return cells, False
    in_turn = np.zeros((int(level.max()) + 1, width), np.int64)
    in_turn[level, np.arange(width)] = cells.sum(axis=0)
    return in_turn, True


def relay_seconds(in_waves: FloatArray, groups: int) -> float:
    """Return the seconds of a pipelined stage from those of every wave and rank, [V, W].

    Group g runs wave w in slot g + w, and in reverse in the backward pass. A slot lasts as long as its slowest rank; V
    consecutive ranks of equal load take (G + V - 1) / G of the computing time of one.
    """
    waves, ranks = in_waves.shape
    slots = np.zeros((groups + waves - 1, ranks))
    for wave in range(waves):
        slots[wave : wave + groups] += in_waves[wave] / groups
    return float(slots.max(axis=1, initial=0.0).sum())
