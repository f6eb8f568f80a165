from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from strobe.engine.inputs.model_choice import choose_model
from strobe.engine.model_costs import measure_model_costs
from strobe.engine.trace import sparse_products
from strobe.graph import DynamicGraph, from_edges
from strobe.graph.synthetic import Social
from strobe.ops.sparse.csr import FloatArray
from strobe.placement import Hash, LoadAware, ModelCosts
from strobe.placement.load_aware import assign_in_snake_order, count_walks, stratify_by_load
from strobe.plan import Plan
from tests.support.graphs import PlainGraph, dynamic_graphs
from tests.support.runs import small_graph

FIRST = [(0, 1), (2, 1), (2, 0), (0, 3), (2, 3)]
SECOND = [(0, 1), (2, 1), (0, 2), (0, 3), (2, 3)]


@pytest.fixture
def example() -> DynamicGraph:
    """Figure 4 of Song et al. 2024, as far as its text tells it: v1 to v4 are nodes 0 to 3.

    Told: in the first snapshot v2 reads v1 and v3, and v3 again in two steps, so v1 reads v3, and v3 nothing. In the
    second v2 has the same load. v2 has 10 in all, v4 has 10, v1 and v3 together 4, and each half of it, or 12 and 12
    could not come out. Assumed: in the second snapshot v1 and v3 change parts; v4 always reads the same as v2.
    """
    return from_edges([np.array(edges).T for edges in (FIRST, SECOND)], num_nodes=4)


def of_parts(loads: FloatArray, *parts: list[int]) -> list[float]:
    return [float(loads[part].sum()) for part in parts]


def test_a_vertex_has_the_load_of_the_papers_second_example(example: DynamicGraph) -> None:
    v2 = 1
    assert count_walks(example[:1], 2)[v2] == 2 + (2 + 1)
    assert count_walks(example[1:], 2)[v2] == 5
    assert count_walks(example, 2).tolist() == [2, 10, 2, 10]


def test_ranks_have_the_loads_of_the_papers_third_example(example: DynamicGraph) -> None:
    loads = count_walks(example, 2)
    assert of_parts(loads, [0, 2], [1, 3]) == [4, 20], "by turns in order of number, which the paper calls hash"
    assert of_parts(loads, [0, 1, 2], [3]) == [14, 10], "the paper's cut with few edges"
    placed = LoadAware(layers=2).place(example, [], 2)
    assert of_parts(loads, *([v for v in range(4) if placed.node_owner[v] == rank] for rank in range(2))) == [12, 12]
    assert placed.node_loads is not None
    assert placed.node_loads.tolist() == [2, 10, 2, 10], "who places by loads tells them"
    assert placed.with_sequence_owner(example).node_loads is placed.node_loads
    assert Hash().place(example, [], 2).node_loads is None


def walks_to(plain: PlainGraph, t: int, node: int, length: int) -> int:
    """Walks of ``length`` arcs that end in a cell, counted one by one."""
    if not length:
        return 1
    return sum(walks_to(plain, t, source, length - 1) for end, source, _ in plain.arcs(t) if end == node)


@given(dynamic_graphs(carried=False, max_edges=6), st.integers(0, 3))
def test_loads_count_walks_up_to_every_layer(plain: PlainGraph, layers: int) -> None:
    expected = [
        sum(
            walks_to(plain, t, node, length)
            for t in range(len(plain.snapshots))
            for layer in range(1, layers + 1)
            for length in range(1, layer + 1)
        )
        for node in range(plain.num_nodes)
    ]
    assert count_walks(plain.build(), layers).tolist() == expected


all_loads = st.lists(st.integers(0, 1000).map(float), max_size=40)


@given(all_loads, st.integers(1, 6))
def test_loads_of_ranks_differ_by_the_heaviest_nodes_at_most(loads: list[float], num_ranks: int) -> None:
    ranks = assign_in_snake_order(np.array(loads), num_ranks)
    held = np.bincount(ranks, loads, num_ranks)
    assert held.max() - held.min() <= max(loads, default=0)
    numbers = np.bincount(ranks, minlength=num_ranks)
    assert numbers.max() - numbers.min() <= 1


def test_nodes_are_dealt_by_load_there_and_back_and_of_equals_by_id() -> None:
    assert assign_in_snake_order(np.array([5.0, 9, 5, 1, 7, 5, 0]), 2).tolist() == [1, 0, 0, 1, 1, 0, 1]


@given(all_loads, st.integers(0, 50), st.integers(1, 6))
def test_nodes_without_load_change_nothing_for_the_others(loads: list[float], more: int, num_ranks: int) -> None:
    padded = assign_in_snake_order(np.array([*(load + 1 for load in loads), *[0.0] * more]), num_ranks)
    assert padded[: len(loads)].tolist() == assign_in_snake_order(np.array(loads) + 1, num_ranks).tolist()


def test_hubs_are_spread_where_a_hash_takes_its_chance() -> None:
    graph = Social(nodes=400, snapshots=6, edges=2_000).write()
    loads, uneven = count_walks(graph, 2), []
    for placement in (LoadAware(layers=2), Hash()):
        held = np.bincount(placement.place(graph, [], 4).node_owner, loads, 4)
        uneven.append(held.max() / held.mean())
    assert uneven[0] < 1.02 < 1.1 < uneven[1]


def test_as_many_layers_are_counted_as_the_model_has_products() -> None:
    graph = Social(nodes=60, snapshots=3, edges=150, seed=2).write()
    one, two = (LoadAware(layers=layers).place(graph, [], 3).node_owner.tolist() for layers in (1, 2))
    assert one != two
    assert LoadAware().place(graph, [], 3).node_owner.tolist() == one
    assert LoadAware().place(graph, [], 3, costs=ModelCosts(hops=2)).node_owner.tolist() == two
    assert LoadAware(layers=1).place(graph, [], 3, costs=ModelCosts(hops=2)).node_owner.tolist() == one
    assert LoadAware.needs_model_costs


@pytest.mark.parametrize(
    ("model", "options"), [("wd-gcn", {"layers": 3}), ("tgcn", {"layers": 2}), ("dcrnn", {}), ("evolvegcn-o", {})]
)
def test_the_engine_tells_how_far_a_model_reads(model: str, options: dict[str, int]) -> None:
    choice, graph = choose_model(model, options), small_graph()
    told = measure_model_costs(choice, graph, Plan().exchange, torch.float32).hops
    assert told == sparse_products(choice, graph) > 0


@given(all_loads, st.integers(1, 9), st.data())
def test_groups_have_as_many_nodes_each_and_loads_that_fall(
    loads: list[float], number: int, data: st.DataObject
) -> None:
    some = data.draw(st.sets(st.sampled_from(range(len(loads))))) if loads else set()
    nodes, of_node = np.array(sorted(some), np.int64), np.array(loads)
    groups = stratify_by_load(nodes, of_node, number)
    assert len(groups) == max(1, min(number, len(nodes)))
    assert sorted(np.concatenate(groups).tolist()) == nodes.tolist(), "every node once"
    sizes = [len(group) for group in groups]
    assert max(sizes) - min(sizes) <= 1
    assert all(group.tolist() == sorted(group.tolist()) for group in groups)
    for heavier, lighter in pairwise(groups):
        assert of_node[heavier].min() >= of_node[lighter].max()
    again = stratify_by_load(nodes, of_node, number)
    assert [group.tolist() for group in again] == [group.tolist() for group in groups]


def test_nodes_of_equal_load_are_grouped_by_id() -> None:
    groups = stratify_by_load(np.array([1, 3, 4, 6, 8]), np.array([0.0, 5, 9, 5, 7, 9, 5, 9, 5]), 2)
    assert [group.tolist() for group in groups] == [[1, 3, 4], [6, 8]]
