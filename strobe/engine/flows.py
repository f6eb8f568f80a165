"""Rows that ranks send each other, counted for all of them at once from who owns which cell: no rank's share is made.

Everything goes through a window once, snapshot by snapshot, with a few arrays over cells or arcs of one snapshot and
over nodes. ``Share`` and what it makes decide the same for one rank; what is counted here is what they do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strobe.exchange.legs import NOBODY, group_cuts
from strobe.ops.csr import IntArray, distinct
from strobe.view import Owners
from strobe.view.share import Homes, Reads

Rows = tuple[IntArray, IntArray]
"""(rank that sends it, rank that gets it) of every row. Those that nobody sends, and those that stay, do not travel."""


@dataclass(frozen=True, eq=False)
class Flow:
    """What every rank sends and gets in one exchange on the way forward, [W] each; gradients go the other way."""

    rows_sent: IntArray
    rows_received: IntArray
    messages_sent: IntArray
    messages_received: IntArray

    @property
    def turned(self) -> Flow:
        """The way back."""
        return Flow(self.rows_received, self.rows_sent, self.messages_received, self.messages_sent)


class Between:
    """Rows between ranks, added up: how many each sends and gets, and who tells whom."""

    def __init__(self, num_ranks: int) -> None:
        self.sent, self.received = np.zeros((2, num_ranks), np.int64)
        self.told = np.zeros((num_ranks, num_ranks), bool)

    def add(self, rows: Rows) -> None:
        source, target = _travelling(rows)
        self.sent += np.bincount(source, minlength=len(self.told))
        self.received += np.bincount(target, minlength=len(self.told))
        self.told[source, target] = True


def in_one(rows: Iterable[Rows], num_ranks: int) -> Flow:
    """One exchange for all snapshots of a window: a rank tells another all it has for it in one message."""
    between = Between(num_ranks)
    for each in rows:
        between.add(each)
    return Flow(between.sent, between.received, between.told.sum(1), between.told.sum(0))


def one_by_one(rows: Iterable[Rows], num_ranks: int) -> list[Flow]:
    """An exchange for each snapshot."""
    found = []
    for each in rows:
        source, target = _travelling(each)
        pairs = each_once(source.astype(np.int64) * num_ranks + target, num_ranks**2)
        ends = source, target, pairs // num_ranks, pairs % num_ranks
        found.append(Flow(*(np.bincount(end, minlength=num_ranks) for end in ends)))
    return found


def together(flows: list[Flow]) -> Flow:
    """Several exchanges, counted as one."""
    ends = ((each.rows_sent, each.rows_received, each.messages_sent, each.messages_received) for each in flows)
    return Flow(*(np.sum(end, axis=0) for end in zip(*ends, strict=True)))


def read_rows(owners: Owners, reads: Reads) -> Iterator[Rows]:
    """Rows of neighbours in each snapshot: once for every other rank that reads a cell, however often it does."""
    for t, owner in zip(owners.times, owners, strict=True):
        snapshot = owners.graph[t]
        source, destination = snapshot.arcs()
        read, reader = (source, destination) if reads == "in" else (destination, source)
        by, of = owner[reader], owner[read]
        elsewhere = by != of
        if owners.chosen is not None:
            elsewhere &= (by != NOBODY) & (of != NOBODY)
        pairs = by[elsewhere].astype(np.int64) * len(owner) + read[elsewhere]
        target, position = np.divmod(each_once(pairs, owners.placed.num_ranks * len(owner)), max(len(owner), 1))
        yield owner[position], target


def moved_rows(owners: Owners, home: Homes) -> Iterator[Rows]:
    """States that must be where a node's next cell is, before each snapshot; ``home`` is where they were at first."""
    for nodes, owner, before in visits(owners):
        yield np.where(before == NOBODY, home[nodes], before), owner


def carried_rows(owners: Owners, home: Homes) -> Iterator[Rows]:
    """States of an earlier window, to where a node has its first cell in this one."""
    for nodes, owner, before in visits(owners):
        first = before == NOBODY
        yield home[nodes[first]], owner[first]


def shuffled_rows(owners: Owners) -> Iterator[Rows]:
    """Cells, to the owners of their sequences."""
    of_sequence = owners.placed.of_sequence
    assert of_sequence is not None  # whoever places cells says so: with_sequences
    for nodes, owner in _present(owners):
        yield owner, of_sequence[nodes]


def relayed(owners: Owners, groups: int) -> tuple[Flow, int]:
    """States at cuts inside a window; and the most legs that a sequence has, 1 where nothing is cut.

    A message has the states of one group of nodes and one wave of legs. It is known by a number, and those of all
    messages are kept until the end.
    """
    num_ranks, length = owners.placed.num_ranks, max(len(owners), 1)
    between = Between(num_ranks)
    legs = np.ones(owners.graph.num_nodes, np.int64)  # of every sequence so far
    borders = group_cuts(_lengths(owners), groups, num_ranks)
    numbers: list[IntArray] = [np.empty(0, np.int64)]
    for nodes, owner, before in visits(owners):
        cut = (before != NOBODY) & (before != owner)
        node, source, target = nodes[cut], before[cut], owner[cut]
        between.add((source, target))
        pair = (np.searchsorted(borders, node, side="right") * num_ranks + source) * num_ranks + target
        numbers.append(each_once(pair * length + legs[node], groups * num_ranks**2 * length))
        legs[node] += 1
    number = np.concatenate(numbers)
    if levels(between.told) is not None:
        number -= number % length  # all legs that a rank has of a group are of one wave
    pair = distinct(number) // length
    told, heard = (np.bincount(end, minlength=num_ranks) for end in (pair // num_ranks % num_ranks, pair % num_ranks))
    return Flow(between.sent, between.received, told, heard), int(legs.max(initial=1))


def each_once(keys: IntArray, limit: int) -> IntArray:
    """Each key once, ascending; all are below ``limit``. Where there are many for so few values none is sorted."""
    if limit > 4 * len(keys):
        return distinct(keys)
    there = np.zeros(limit, bool)
    there[keys] = True
    return np.flatnonzero(there)


def _travelling(rows: Rows) -> Rows:
    source, target = rows
    travels = (source != target) & (source != NOBODY)
    return source[travels], target[travels]


def visits(owners: Owners) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    """For each snapshot its nodes, who has their cells, and who had the ones before in the window, or NOBODY."""
    now = np.full(owners.graph.num_nodes, NOBODY, np.int16)
    for nodes, owner in _present(owners):
        yield nodes, owner, now[nodes]
        now[nodes] = owner


def levels(told: npt.NDArray[np.bool_]) -> IntArray | None:
    """How late each rank comes, [W], if sequences visit ranks in one order: then a rank has one leg of each at most,
    and all at once. None where they go round in circles."""
    waits = told.sum(0)
    found = np.zeros(len(told), np.int64)
    ready, num_done, level = np.flatnonzero(waits == 0), 0, 0
    while len(ready):
        found[ready] = level
        num_done, level = num_done + len(ready), level + 1
        heard = told[ready].sum(0)
        waits -= heard
        ready = np.flatnonzero((waits == 0) & (heard > 0))
    return found if num_done == len(told) else None


def _present(owners: Owners) -> Iterator[tuple[IntArray, IntArray]]:
    """For each snapshot the nodes whose cells take part, and who has them."""
    for t, owner in zip(owners.times, owners, strict=True):
        nodes = owners.graph[t].nodes
        if owners.chosen is not None:
            nodes, owner = nodes[owner != NOBODY], owner[owner != NOBODY]
        yield nodes, owner


def _lengths(owners: Owners) -> IntArray:
    """How many cells each sequence has in the window, [N]."""
    count = np.zeros(owners.graph.num_nodes, np.int64)
    for nodes, _ in _present(owners):
        count[nodes] += 1  # a node is in a snapshot once
    return count
