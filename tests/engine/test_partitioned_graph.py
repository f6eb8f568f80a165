from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.batching import Batching, Hybrid, Trapezoid, Vertices
from strobe.comm import NO_RANK, Comm, SingleRankComm
from strobe.engine.partitioned_graph import PartitionedGraph, khop_masks, partition_graph
from strobe.graph import DynamicGraph
from strobe.placement import Hash, Partition, Placement, PlacementRequest, Replicated, TimeBlocks
from strobe.plan import Plan
from tests.support.graphs import PlainGraph, dynamic_graphs
from tests.support.model_cases import CHANGING, with_inputs
from tests.support.partitions import Owned, one_of, owned_graphs
from tests.support.ranks import as_threads

GRAPH = with_inputs(CHANGING.build())  # 4, 3, 0, 6, 4 and 6 cells
quick = settings(deadline=None, max_examples=60)


def in_turn(num_ranks: int = 3) -> Partition:
    return Partition.by_cell(num_ranks, np.arange(GRAPH.num_cells) % num_ranks, GRAPH).with_sequence_owner(GRAPH)


def test_without_a_placement_one_rank_has_it_all() -> None:
    sharing = PartitionedGraph(GRAPH, dtype=torch.float64)
    cells = sharing.window_data(range(1, 4))
    assert not sharing.is_partitioned
    assert cells.local_partition is None
    assert cells.graph == GRAPH[1:4]
    assert (cells.dtype, cells.device) == (torch.float64, torch.device("cpu"))


def test_replicas_are_not_shared() -> None:
    placed = Replicated().place(GRAPH, [range(6)], 3)
    sharing = PartitionedGraph(GRAPH, Plan(placement=Replicated()), one_of(2, 3), placed)
    assert not sharing.is_partitioned
    assert sharing.window_data(range(6)).local_partition is None
    assert sharing.window_data(range(6)).num_cells == GRAPH.num_cells


def test_a_rank_gets_its_cells_of_the_window_and_the_plan_s_exchange() -> None:
    plan, comm = Plan(), one_of(1, 3)
    sharing = PartitionedGraph(GRAPH, plan, comm, in_turn(), dtype=torch.float64)
    cells = sharing.window_data(range(1, 4))
    assert sharing.is_partitioned
    assert cells.local_partition is not None
    assert cells.local_partition.comm is comm
    assert cells.local_partition.exchange is plan.exchange
    assert [own.tolist() for own in cells.local_partition.own] == [[0], [], [0, 3]]
    assert (cells.graph, cells.local_partition.owners.times) == (GRAPH[1:4], range(1, 4))
    assert cells.dtype == torch.float64


@quick
@given(owned_graphs(min_snapshots=1, max_snapshots=5), st.lists(st.integers(0, 4), min_size=1, max_size=5))
def test_homes_are_found_for_any_window_in_any_order(owned: Owned, starts: list[int]) -> None:
    sharing = PartitionedGraph(owned.graph, None, one_of(0, owned.num_ranks), owned.placed)
    for start in (min(start, len(owned.graph)) for start in starts):
        share = sharing.window_data(range(start, len(owned.graph))).local_partition
        assert share is not None
        expected = [NO_RANK] * owned.graph.num_nodes
        for t in range(start):
            for node, who in zip(owned.plain.present(t), owned.owner(t), strict=True):
                expected[node] = who
        if not owned.placed.whole_sequences:  # else it is not read
            assert share.home.tolist() == expected
        fresh = sharing.window_data(range(start, len(owned.graph)), resets_state=True).local_partition
        assert fresh is not None
        assert fresh.home.tolist() == [NO_RANK] * owned.graph.num_nodes


def test_homes_of_one_window_do_not_change_with_the_next() -> None:
    sharing = PartitionedGraph(GRAPH, None, one_of(0, 3), in_turn())
    first, second = sharing.window_data(range(1, 2)).local_partition, sharing.window_data(range(4, 5)).local_partition
    assert first is not None
    assert second is not None
    assert first.home.tolist() == [0, 1, 2, -1, 0, -1]
    assert second.home.tolist() == [1, 2, 0, 1, 2, 0]


def test_chosen_cells_are_a_share_even_on_one_rank() -> None:
    chosen = [np.array([True, False, True, False]), np.array([False, False, True])]
    cells = PartitionedGraph(GRAPH).window_data(range(2), masks=chosen, resets_state=True)
    assert cells.local_partition is not None
    assert [own.tolist() for own in cells.local_partition.own] == [[0, 2], [2]]
    assert cells.local_partition.snapshot_sizes.tolist() == [2, 1]


@dataclass(frozen=True, kw_only=True)
class Noted(Placement):
    """Time blocks; notes who was asked for them and with what."""

    name: ClassVar[str] = "noted"
    asked: Any = None

    def partition(self, request: PlacementRequest) -> Partition:
        self.asked.append((request.graph, list(request.windows), request.num_ranks, request.seed))
        return TimeBlocks().partition(request)


def test_rank_0_partitions_for_all_ranks() -> None:
    asked: list[Any] = []
    plan = Plan(placement=Noted(asked=asked))

    def work(comm: Comm) -> Partition | None:
        return partition_graph(GRAPH, plan, comm, [range(3), range(3, 6)], range(3), 7)

    first, *others = as_threads(work, 3)
    assert asked == [(GRAPH, [range(3), range(3, 6)], 3, 7)]
    assert first is not None
    assert first.sequence_owner is not None, "every sequence has an owner, too"
    for other in others:
        assert other is not None
        assert other.snapshot_owner.tolist() == first.snapshot_owner.tolist()


@dataclass(frozen=True, kw_only=True)
class NotedNodes(Noted):
    """Nodes in turn; notes what it was asked."""

    def partition(self, request: PlacementRequest) -> Partition:
        self.asked.append((len(request.graph), list(request.windows)))
        return Hash().partition(request)


@pytest.mark.parametrize("batching", [Hybrid(), Trapezoid(), Vertices(reservoir=1.0)])
def test_a_placement_that_shapes_training_steps_sees_training_snapshots_alone(batching: Batching) -> None:
    asked: list[Any] = []
    plan = Plan(placement=NotedNodes(asked=asked), batching=batching)
    placed = partition_graph(GRAPH, plan, SingleRankComm(), [range(3), range(3, 6)], range(3), 7)
    assert asked == [(3, [range(3)])]
    assert placed is not None
    assert len(placed.snapshot_owner) == len(GRAPH), "later snapshots have owners, too"


def test_one_rank_need_not_place_anything() -> None:
    asked: list[Any] = []
    assert partition_graph(GRAPH, Plan(placement=Noted(asked=asked)), SingleRankComm(), [range(6)], range(6), 0) is None
    assert asked == []


# What some nodes read.


def ball(plain: PlainGraph, t: int, centres: set[int], steps: int) -> set[int]:
    """Present nodes within ``steps`` steps along or against edges, by trying all of them again and again."""
    inside = {v for v in plain.present(t) if v in centres}
    for _ in range(steps):
        inside |= {other for u, v, _ in plain.snapshots[t].edges for one, other in ((u, v), (v, u)) if one in inside}
    return inside


def chosen_nodes(plain: PlainGraph, graph: DynamicGraph, targets: list[int], hops: int, times: range) -> list[set[int]]:
    masks = khop_masks(graph, times, np.array(targets, np.int64), hops)
    assert [len(mask) for mask in masks] == [len(plain.present(t)) for t in times]
    return [
        {v for v, inside in zip(plain.present(t), mask, strict=True) if inside}
        for t, mask in zip(times, masks, strict=True)
    ]


@quick
@given(
    dynamic_graphs(carried=False, min_snapshots=1, max_snapshots=3),
    st.integers(0, 3),
    st.booleans(),
    st.sets(st.integers(0, 5)),
)
def test_cells_around_some_nodes_are_all_that_they_read_within_hops(
    plain: PlainGraph, hops: int, directed: bool, targets: set[int]
) -> None:
    plain = replace(plain, directed=directed)
    targets = {v for v in targets if v < plain.num_nodes}
    times = range(len(plain.snapshots))
    for t, found in zip(times, chosen_nodes(plain, plain.build(), sorted(targets), hops, times), strict=True):
        needed = ball(plain, t, targets, hops)
        if not directed:
            assert found == needed
        else:  # models read along edges and against them, so more than the ball may be there, but nothing out of reach
            assert needed <= found <= ball(plain, t, targets, 2 * hops)


def test_cells_around_nodes_that_are_absent_are_none() -> None:
    assert chosen_nodes(CHANGING, GRAPH, [5], 2, range(1, 4)) == [set(), set(), {0, 1, 3, 4, 5}]


def test_without_products_only_the_nodes_themselves_are_there() -> None:
    assert chosen_nodes(CHANGING, GRAPH, [1, 4], 0, range(6)) == [{1, 4}, {4}, set(), {1, 4}, {1}, {1, 4}]


@pytest.mark.parametrize(("hops", "expected"), [(1, {0, 1}), (2, {0, 1, 2}), (3, {0, 1, 2, 3}), (9, {0, 1, 2, 3})])
def test_every_product_reaches_one_edge_further(hops: int, expected: set[int]) -> None:
    chain = PlainGraph(
        5, [replace(CHANGING.snapshots[0], nodes=[0, 1, 2, 3, 4], edges=[(0, 1, 1.0), (1, 2, 1.0), (2, 3, 1.0)])]
    )
    for directed in (True, False):
        plain = replace(chain, directed=directed)
        assert chosen_nodes(plain, plain.build(), [0], hops, range(1)) == [expected]
