"""Where the embeddings of both ends of pairs of nodes are: in the latest cell of each node, wherever that is.

A node that is absent from the snapshot read has the embedding of its latest cell: a row of the window, or a row that
the previous window saved. The row may be on another rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from strobe.comm import NO_RANK
from strobe.comm.rows import Route
from strobe.ops.sparse.csr import IntArray
from strobe.view.data.window import WindowData
from strobe.view.view import View


@dataclass(frozen=True, eq=False)
class PairEnds:
    """The ends of pairs and where their embeddings are.

    Args:
        nodes: the ends, [n].
        rank: the rank that has the embedding; ``NO_RANK`` if no rank has one.
        key: the number of the latest cell among all cells of the window, of all ranks; for a saved embedding the number
            of all cells plus the node.
    """

    nodes: IntArray
    rank: IntArray
    key: IntArray

    @classmethod
    def concatenate(cls, parts: Sequence[PairEnds]) -> PairEnds:
        """The ends of several snapshots."""
        if len(parts) == 1:
            return parts[0]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("nodes", "rank", "key")))

    def select(self, index: IntArray) -> PairEnds:
        """Some of the ends."""
        return PairEnds(self.nodes[index], self.rank[index], self.key[index])


class LatestCells:
    """Where every node's embedding is, read snapshot by snapshot of a window."""

    def __init__(self, data: WindowData) -> None:
        self._data, num_nodes = data, data.graph.num_nodes
        self._first_cell = np.asarray(data.graph.cell_ptr) - data.graph.cell_ptr[0]
        self._key = self._first_cell[-1] + np.arange(num_nodes)
        partition = data.local_partition
        self._rank = np.zeros(num_nodes, np.int16) if partition is None else partition.state_rank.astype(np.int16)

    def read(self, k: int) -> None:
        """Read the k-th snapshot of the window."""
        nodes, cells = self._data.graph[k].nodes, np.arange(self._first_cell[k], self._first_cell[k + 1])
        if self._data.local_partition is not None:
            rank = self._data.local_partition.computing_rank(k)
            there = rank != NO_RANK
            nodes, cells = nodes[there], cells[there]
            self._rank[nodes] = rank[there]
        self._key[nodes] = cells

    def locate(self, nodes: IntArray) -> PairEnds:
        """Where the embeddings of nodes are, given the snapshots read so far."""
        return PairEnds(nodes, self._rank[nodes], self._key[nodes])


@dataclass(frozen=True, eq=False)
class PairRows:
    """The pairs of one rank, or its sources and all candidates, and the rows of their ends.

    Args:
        index: which pairs or sources they are.
        rows: rows of sources and of destinations or candidates, among the window's cells, saved embeddings, received
            ones, and last the one of nodes without any.
        slots: the slots of saved embeddings.
        route: rows to send, among cells and saved embeddings, and to receive.
    """

    index: IntArray
    rows: tuple[Tensor, Tensor]
    slots: Tensor
    route: Route


def find_pair_rows(data: WindowData, sources: PairEnds, destinations: PairEnds) -> PairRows:
    """Find the pairs whose source's embedding this rank has, and the rows of their ends.

    A pure function: sender and receiver derive matching routes. Pairs of a source without an embedding are distributed
    over the ranks by its node id.
    """
    rank = data.comm.rank
    scoring = _scoring_ranks(data, sources)
    index = np.flatnonzero(scoring == rank)
    leaves = (destinations.rank == rank) & (scoring != rank)
    leaving = _unique_pairs(scoring[leaves], destinations.key[leaves])
    return _find_rows(data, index, sources.select(index), destinations.select(index), leaving)


@dataclass(frozen=True, eq=False)
class BatchRows:
    """The pairs of one rank with their distinct ends, and the rows of these.

    Args:
        pairs: which pairs they are; ``rows.index``: which sources.
        destinations: which destinations they have.
        rows: rows of these sources and destinations.
    """

    pairs: IntArray
    destinations: IntArray
    rows: PairRows


def find_batch_rows(
    data: WindowData, ends: tuple[PairEnds, PairEnds], positions: tuple[IntArray, IntArray]
) -> BatchRows:
    """``find_pair_rows`` of pairs whose ends are listed once.

    Args:
        data: the window.
        ends: distinct sources and destinations.
        positions: of each pair's source and destination among them, [n] each.
    """
    (sources, destinations), (row, column) = ends, positions
    if data.comm.num_ranks == 1:
        nothing = np.empty((2, 0), np.int64)
        rows = _find_rows(data, np.arange(len(sources.nodes)), sources, destinations, nothing)
        return BatchRows(np.arange(len(row)), np.arange(len(destinations.nodes)), rows)
    rank, scoring = data.comm.rank, _scoring_ranks(data, sources)
    index, own = np.flatnonzero(scoring == rank), scoring[row] == rank
    leaves = (destinations.rank[column] == rank) & ~own
    leaving = _unique_pairs(scoring[row[leaves]], destinations.key[column[leaves]])
    wanted = np.unique(column[own])
    found = _find_rows(data, index, sources.select(index), destinations.select(wanted), leaving)
    return BatchRows(np.flatnonzero(own), wanted, found)


def find_grid_rows(data: WindowData, sources: PairEnds, candidates: PairEnds) -> PairRows:
    """Find the sources whose embedding this rank has, and the rows of them and of all candidates.

    Every rank that scores a source receives the rows of all candidates that it does not have: at most one row per
    candidate and rank.
    """
    rank = data.comm.rank
    scoring = _scoring_ranks(data, sources)
    index = np.flatnonzero(scoring == rank)
    own = np.unique(candidates.key[candidates.rank == rank])
    others = np.setdiff1d(scoring, [rank])
    leaving = np.stack([np.repeat(others, len(own)), np.tile(own, len(others))])
    wanted = candidates if len(index) else candidates.select(index)
    return _find_rows(data, index, sources.select(index), wanted, leaving)


def _scoring_ranks(data: WindowData, sources: PairEnds) -> IntArray:
    """The rank that scores the pairs of each source."""
    return np.where(sources.rank == NO_RANK, sources.nodes % data.comm.num_ranks, sources.rank)


def _find_rows(
    data: WindowData, index: IntArray, sources: PairEnds, destinations: PairEnds, leaving: IntArray
) -> PairRows:
    """Rows of sources, all of which this rank has, and of destinations; ``leaving``: (rank, key) of rows to send."""
    rank = data.comm.rank
    remote = (destinations.rank != rank) & (destinations.rank != NO_RANK)
    arriving = _unique_pairs(destinations.rank[remote], destinations.key[remote])
    ends = sources, destinations
    local = _LocalRows(data, [leaving[1], *(end.key[end.rank == rank] for end in ends)])
    rows = []
    for end in ends:
        row = np.full(len(end.nodes), local.num_rows + arriving.shape[1])
        row[end.rank == rank] = local.find(end.key[end.rank == rank])
        if end is destinations:
            row[remote] = local.num_rows + _find_pairs(arriving, end.rank[remote], end.key[remote])
        rows.append(torch.from_numpy(row).to(data.device))
    sent = torch.from_numpy(local.find(leaving[1])).to(data.device)
    send = {int(to): sent[torch.from_numpy(leaving[0] == to).to(data.device)] for to in np.unique(leaving[0])}
    owners, counts = np.unique(arriving[0], return_counts=True)
    receive = {int(owner): int(count) for owner, count in zip(owners, counts, strict=True)}
    return PairRows(index, (rows[0], rows[1]), torch.from_numpy(local.slots).to(data.device), Route(send, receive))


class _LocalRows:
    """Rows of this rank's cells and of the saved embeddings that ``keys`` name."""

    def __init__(self, data: WindowData, keys: Sequence[IntArray]) -> None:
        self._data, partition = data, data.local_partition
        self._num_cells = int(data.graph.cell_ptr[-1] - data.graph.cell_ptr[0])  # of all ranks
        self._row: IntArray | None = None
        if partition is not None:
            first = np.asarray(data.graph.cell_ptr) - data.graph.cell_ptr[0]
            self._row = np.full(self._num_cells, -1)
            for k, own in enumerate(partition.own):
                self._row[first[k] + own] = np.arange(data.cell_ptr[k], data.cell_ptr[k + 1])
        self.slots = np.unique(np.concatenate([self._slots(each) for each in keys]))
        self.num_rows = data.num_cells + len(self.slots)

    def _slots(self, keys: IntArray) -> IntArray:
        return self._data.node_slots(keys[keys >= self._num_cells] - self._num_cells)

    def find(self, keys: IntArray) -> IntArray:
        """The row of each key."""
        is_cell = keys < self._num_cells
        rows = np.empty(len(keys), np.int64)
        rows[is_cell] = keys[is_cell] if self._row is None else self._row[keys[is_cell]]
        rows[~is_cell] = self._data.num_cells + np.searchsorted(self.slots, self._slots(keys))
        return rows


def _unique_pairs(rank: IntArray, key: IntArray) -> IntArray:
    """Distinct (rank, key), in order, [2, n]."""
    order = np.lexsort((key, rank))
    pairs = np.stack([rank.astype(np.int64), key])[:, order]
    return pairs[:, np.append(True, (np.diff(pairs) != 0).any(0))[: pairs.shape[1]]]


def _find_pairs(pairs: IntArray, rank: IntArray, key: IntArray) -> IntArray:
    """The position of each (rank, key) among pairs, which are in order."""
    base = int(pairs[1].max(initial=0)) + 1
    return np.searchsorted(pairs[0] * base + pairs[1], rank.astype(np.int64) * base + key)


def gather_latest(view: View, x: Tensor, slots: Tensor, route: Route, unseen: Tensor) -> Tensor:
    """Append to the rows of local cells those of other nodes' latest cells. Never stale.

    Args:
        view: the pass.
        x: rows of local cells, [C, F].
        slots: of the nodes whose row ``save_latest`` of the previous window saved, [S].
        route: rows of x and of saved ones to send to other ranks, and to receive.
        unseen: the row of nodes that had no cell yet, [F].

    Returns:
        Rows of local cells, saved, received and unseen, [C + S + R + 1, F].
    """
    unseen = unseen.to(x.dtype)[None]
    own = [x]
    if len(slots):
        saved = view.load_state()
        rows = x.new_zeros(len(slots), x.shape[1] + 1) if saved is None else saved[slots]
        is_saved = rows[:, -1:]
        own.append(is_saved * rows[:, :-1] + (1 - is_saved) * unseen)
    if route.is_empty:
        return torch.cat([*own, unseen])
    x = torch.cat(own)
    return torch.cat([x, view.exchange_rows(route, x, kind="pairs"), unseen])


def save_latest(view: View, x: Tensor) -> None:
    """Save the row of each node's latest cell for the next window, with a column of ones, which marks nodes that have
    one."""
    view.save_state(view.data.save_latest(view.load_state(), torch.cat([x, x.new_ones(len(x), 1)], 1)))
