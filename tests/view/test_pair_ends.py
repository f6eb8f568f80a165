from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from strobe.comm import Comm
from strobe.engine.partitioned_graph import PartitionedGraph
from strobe.ops.graph.listed_pairs import DistinctNodes
from strobe.ops.sparse.csr import IntArray
from strobe.view import (
    Carry,
    LatestCells,
    PairRows,
    View,
    WindowData,
    find_batch_rows,
    find_pair_rows,
    gather_latest,
    save_latest,
)
from tests.support.model_cases import CHANGING, with_inputs
from tests.support.partitions import Owned, among_threads, owned_graphs
from tests.support.ranks import as_threads

UNSEEN = -7.0

Pairs = list[tuple[int, int]]


@dataclass(frozen=True)
class Question:
    """Pairs of nodes after each snapshot of a graph that is cut into windows."""

    owned: Owned
    cuts: list[int]
    pairs: list[Pairs]

    @property
    def windows(self) -> list[range]:
        return [range(a, b) for a, b in pairwise(self.cuts) if a < b]


@st.composite
def questions(draw: st.DrawFn) -> Question:
    owned = draw(owned_graphs(min_ranks=1))
    length, num_nodes = len(owned.graph), owned.graph.num_nodes
    node = st.integers(0, max(num_nodes - 1, 0))
    inner = draw(st.sets(st.integers(1, length - 1))) if length > 1 else set()
    pairs = [draw(st.lists(st.tuples(node, node), max_size=5 if num_nodes else 0)) for _ in range(length)]
    return Question(owned, [0, *sorted(inner), length], pairs)


def latest_cell(owned: Owned, node: int, t: int) -> float:
    """The number of a node's last cell up to snapshot t, found by looking at every snapshot."""
    for s in range(t, -1, -1):
        nodes = owned.graph[s].nodes.tolist()
        if node in nodes:
            return float(owned.graph.cell_ptr[s] + nodes.index(node))
    return UNSEEN


def find_by_nodes(data: WindowData, latest: LatestCells, src: IntArray, dst: IntArray) -> PairRows:
    """``find_pair_rows`` by ``find_batch_rows``."""
    ends = [DistinctNodes.find(np.array([0, len(each)]), each) for each in (src, dst)]
    located = latest.locate(ends[0].nodes), latest.locate(ends[1].nodes)
    found = find_batch_rows(data, located, (ends[0].position, ends[1].position))
    row, column = (
        end.select(found.pairs, chosen).position
        for end, chosen in zip(ends, (found.rows.index, found.destinations), strict=True)
    )
    rows = found.rows.rows[0][torch.from_numpy(row)], found.rows.rows[1][torch.from_numpy(column)]
    return PairRows(found.pairs, rows, found.rows.slots, found.rows.route)


def find_by_pairs(data: WindowData, latest: LatestCells, src: IntArray, dst: IntArray) -> PairRows:
    return find_pair_rows(data, latest.locate(src), latest.locate(dst))


FIND = (find_by_pairs, find_by_nodes)


def answer(question: Question, comm: Comm, *, find: Any = find_by_pairs) -> list[list[tuple[int, float, float]]]:
    """Per snapshot, the pairs that a rank scores: their index, and what it finds for both ends. The embedding of a cell
    is its number."""
    owned = question.owned
    whole = PartitionedGraph(owned.graph, None, comm, owned.placed if comm.num_ranks > 1 else None, dtype=torch.float64)
    found, carry = [], None
    for times in question.windows:
        data = whole.window_data(times)
        view = View(data, carry)
        first = owned.graph.cell_ptr[times.start]
        numbers = torch.from_numpy(first + np.arange(owned.graph.cell_ptr[times.stop] - first)).double()
        if data.local_partition is not None:
            ptr = owned.graph.cell_ptr
            own = [ptr[t] + rows for t, rows in zip(times, data.local_partition.own, strict=True)]
            numbers = torch.from_numpy(np.concatenate(own)).double()
        latest = LatestCells(data)
        for k, t in enumerate(times):
            latest.read(k)
            src, dst = np.array(question.pairs[t], np.int64).reshape(-1, 2).T
            rows = find(data, latest, src, dst)
            z = gather_latest(view, numbers[:, None], rows.slots, rows.route, torch.tensor([UNSEEN]))
            ends = [z[each, 0].tolist() for each in rows.rows]
            found.append(list(zip(rows.index.tolist(), *ends, strict=True)))
        save_latest(view, numbers[:, None])
        carry = view.carry
    return found


@among_threads(60)
@given(questions())
def test_every_pair_is_scored_once_with_the_latest_cells_of_its_ends(question: Question) -> None:
    for find in FIND:
        ranks = as_threads(partial(answer, question, find=find), question.owned.num_ranks)
        for t, pairs in enumerate(question.pairs):
            found = sorted(each for rank in ranks for each in rank[t])
            expected = [(k, *(latest_cell(question.owned, node, t) for node in pair)) for k, pair in enumerate(pairs)]
            assert found == expected


def gradients(comm: Comm, question: Question, weights: Sequence[float]) -> dict[int, float]:
    """Gradient of a weighted sum over all pairs' ends, by number of the cell: one window over all snapshots."""
    owned = question.owned
    whole = PartitionedGraph(owned.graph, None, comm, owned.placed if comm.num_ranks > 1 else None, dtype=torch.float64)
    times = range(len(owned.graph))
    data = whole.window_data(times)
    cells = range(owned.graph.num_cells) if data.local_partition is None else owned.numbers(comm.rank)
    z = torch.tensor([[float(number)] for number in cells], dtype=torch.float64).reshape(-1, 1).requires_grad_()
    carry: Carry | None = None
    view, latest = View(data, carry), LatestCells(data)
    loss = z.sum() * 0
    for t in times:
        latest.read(t)
        src, dst = np.array(question.pairs[t], np.int64).reshape(-1, 2).T
        rows = find_pair_rows(data, latest.locate(src), latest.locate(dst))
        ends = gather_latest(view, z, rows.slots, rows.route, torch.zeros(1, dtype=torch.float64))
        scale = torch.tensor([weights[(t + k) % len(weights)] for k in rows.index.tolist()], dtype=torch.float64)
        loss = loss + (scale * (ends[rows.rows[0], 0] + 2 * ends[rows.rows[1], 0])).sum()
    view.attach_exchanges(loss).backward()
    assert z.grad is not None
    return dict(zip(cells, z.grad[:, 0].tolist(), strict=True))


@among_threads(30)
@given(questions(), st.lists(st.integers(1, 9).map(float), min_size=1, max_size=4))
def test_gradients_reach_the_rank_that_has_the_cell(question: Question, weights: list[float]) -> None:
    found: dict[int, float] = {}
    for rank in as_threads(lambda comm: gradients(comm, question, weights), question.owned.num_ranks):
        found |= rank
    expected = dict.fromkeys(range(question.owned.graph.num_cells), 0.0)
    for t, pairs in enumerate(question.pairs):
        for k, pair in enumerate(pairs):
            for factor, node in zip((1.0, 2.0), pair, strict=True):
                cell = latest_cell(question.owned, node, t)
                if cell != UNSEEN:
                    expected[int(cell)] += factor * weights[(t + k) % len(weights)]
    assert found == expected


def test_a_window_that_starts_without_saved_rows_has_no_earlier_ones() -> None:
    """As evaluation does that reads only the last snapshots: where states were is known, but there are none."""
    graph = with_inputs(CHANGING.build())
    data = PartitionedGraph(graph).window_data(range(4, 6))
    latest = LatestCells(data)
    latest.read(0)
    rows = find_pair_rows(data, latest.locate(np.array([0, 1])), latest.locate(np.array([2, 4])))
    z = gather_latest(View(data), torch.arange(10.0)[:, None], rows.slots, rows.route, torch.tensor([UNSEEN]))
    assert [z[each, 0].tolist() for each in rows.rows] == [[UNSEEN, 0.0], [1.0, UNSEEN]]
