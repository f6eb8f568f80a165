from __future__ import annotations

import itertools
import json
import statistics
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.graph import Degrees, DynamicGraph, Snapshot, from_edges
from strobe.graph.stats import DegreeDistribution, GraphStats, SnapshotStats, Spread, describe, gini
from strobe.graph.stats.distributions import fit_tail
from tests.support.graphs import dynamic_graphs

Pair = tuple[int, int]


def graphs() -> st.SearchStrategy[DynamicGraph]:
    """Any small graph without features, or with features per cell: only those cost bytes in every snapshot."""
    plain = dynamic_graphs(max_snapshots=5, max_edges=12)
    return plain.map(lambda graph: replace(graph, node_x=None, derived=None).build())


def weighted_edges(snapshot: Snapshot) -> list[tuple[Pair, float | None]]:
    src, dst, weight = snapshot.edges()
    pairs = zip(src.tolist(), dst.tolist(), strict=True)
    return list(zip(pairs, [None] * src.size if weight is None else weight.tolist(), strict=True))


def numbered(snapshot: Snapshot) -> dict[tuple[Pair, int], float | None]:
    """Edges by (pair, how many equal pairs came before)."""
    seen: Counter[Pair] = Counter()
    found = {}
    for pair, weight in weighted_edges(snapshot):
        found[pair, seen[pair]] = weight
        seen[pair] += 1
    return found


def slow_full_bytes(graph: DynamicGraph, snapshot: Snapshot) -> int:
    ids = 0 if snapshot.num_nodes == graph.num_nodes else 4 * snapshot.num_nodes
    csr = 4 * (snapshot.num_nodes + 1) + 4 * snapshot.num_arcs
    rows = 0 if snapshot.x is None else snapshot.x.nbytes
    if graph.structures[snapshot.t] in graph.structures[: snapshot.t]:
        return rows
    return ids + csr + rows + (0 if snapshot.weight is None else snapshot.weight.nbytes)


def slow_delta_bytes(before: Snapshot, now: Snapshot) -> int:
    old, new = numbered(before), numbered(now)
    sent = [edge for edge, weight in new.items() if edge not in old or old[edge] != weight]
    deleted = old.keys() - new.keys()
    came_or_left = set(before.nodes.tolist()) ^ set(now.nodes.tolist())
    total = (
        len(sent) * (8 + (0 if now.weight is None else now.weight.itemsize)) + 8 * len(deleted) + 4 * len(came_or_left)
    )
    if now.x is not None and before.x is not None:
        rows = {node: row.tobytes() for node, row in zip(before.nodes.tolist(), before.x, strict=True)}
        changed = [row for node, row in zip(now.nodes.tolist(), now.x, strict=True) if rows.get(node) != row.tobytes()]
        total += sum(row.nbytes for row in changed)
    return total


def slow_snapshot(graph: DynamicGraph, t: int) -> dict[str, Any]:
    now = graph[t]
    present = set(now.nodes.tolist())
    pairs = [pair for pair, _ in weighted_edges(now)]
    earlier = [set(graph[s].nodes.tolist()) for s in range(t)]
    ever: set[int] = set().union(*earlier)
    before = earlier[-1] if earlier else set[int]()
    old = {pair for pair, _ in weighted_edges(graph[t - 1])} if t else set()
    return {
        "nodes": len(present),
        "edges": len(pairs),
        "self_loops": sum(a == b for a, b in pairs),
        "parallel_edges": len(pairs) - len(set(pairs)),
        "isolated": len(present - {end for pair in pairs for end in pair}),
        "arrivals": len(present - ever),
        "departures": len(before - present),
        "returns": len((present & ever) - before),
        "new_pairs": len(set(pairs) - old),
        "dropped_pairs": len(old - set(pairs)),
        "retained_pairs": len(old & set(pairs)),
        "full_bytes": slow_full_bytes(graph, now),
        "delta_bytes": slow_delta_bytes(graph[t - 1], now) if t else slow_full_bytes(graph, now),
    }


def assert_as_slow(stats: GraphStats, graph: DynamicGraph) -> None:
    for t, found in enumerate(stats.snapshots):
        expected = slow_snapshot(graph, t)
        assert {name: getattr(found, name) for name in expected} == expected
    lengths = Counter(node for snapshot in graph for node in snapshot.nodes.tolist())
    by_length = Counter(lengths[node] for node in range(graph.num_nodes))
    assert stats.sequences.counts == tuple(by_length[k] for k in range(len(graph) + 1))
    assert stats.sequences.num_never_present == graph.num_nodes - len(lengths)
    if lengths:
        assert stats.sequences.mean == pytest.approx(statistics.mean(lengths.values()))
        assert stats.sequences.median == statistics.median_low(lengths.values())
        assert stats.sequences.max == max(lengths.values())
    degrees = [degree for snapshot in graph for degree in snapshot.in_degree.tolist()]
    if degrees:
        assert stats.degrees.mean == pytest.approx(statistics.mean(degrees))
        assert stats.degrees.median == statistics.median_low(degrees)
        assert stats.degrees.max == max(degrees)
        assert sum(stats.degrees.counts) == len(degrees)
        assert stats.degrees.gini == pytest.approx(slow_gini(degrees))


def slow_gini(values: list[int]) -> float:
    differences = sum(abs(a - b) for a, b in itertools.product(values, repeat=2))
    return differences / (2 * len(values) * sum(values)) if sum(values) else 0.0


@settings(max_examples=150, deadline=None)
@given(graphs())
def test_one_pass_agrees_with_plain_sets(graph: DynamicGraph) -> None:
    assert_as_slow(describe(graph), graph)


@settings(max_examples=30, deadline=None)
@given(graphs())
def test_views_are_described_as_what_they_show(graph: DynamicGraph) -> None:
    view = graph[1:].subset(range(0, graph.num_nodes, 2))
    assert_as_slow(describe(view), view)


def example() -> DynamicGraph:
    """0 -> 1 twice and a loop; then node 2 replaces node 0; then node 0 returns and everything is quiet."""
    return from_edges(
        [[[0, 0, 1], [1, 1, 1]], [[1, 1], [1, 2]], [[], []]],
        nodes=[[0, 1], [1, 2], [0, 1]],
        num_nodes=4,
        times=["mon", "tue", "wed"],
        x=[[[1.0], [2.0]], [[2.0], [3.0]], [[1.0], [5.0]]],
    )


def test_a_small_graph_by_hand() -> None:
    stats = describe(example())
    expected: dict[str, list[Any]] = {
        "time": ["mon", "tue", "wed"],
        "nodes": [2, 2, 2],
        "edges": [3, 2, 0],
        "arcs": [3, 2, 0],
        "self_loops": [1, 1, 0],
        "parallel_edges": [1, 0, 0],
        "isolated": [0, 0, 2],
        "arrivals": [2, 1, 0],
        "departures": [0, 1, 1],
        "returns": [0, 0, 1],
        "new_pairs": [2, 1, 0],
        "dropped_pairs": [0, 1, 2],
        "retained_pairs": [0, 1, 0],
        "changed_rows": [2, 1, 2],
        # ids, row pointers, columns, rows of one float64
        "full_bytes": [8 + 12 + 12 + 16, 8 + 12 + 8 + 16, 8 + 12 + 0 + 16],
        # nodes that came or left, edges in, edges out, rows
        "delta_bytes": [8 + 12 + 12 + 16, 8 + 8 + 16 + 8, 8 + 0 + 16 + 16],
    }
    assert {name: stats.series(name) for name in SnapshotStats.__dataclass_fields__} == expected
    assert (stats.snapshots[1].new_share, stats.snapshots[1].dropped_share) == (0.5, 0.5)
    assert stats.snapshots[1].jaccard == pytest.approx(1 / 3)
    assert stats.shared_pairs == 1 / 5
    found = json.loads(json.dumps(stats.to_dict(), allow_nan=False))
    assert found["snapshots"]["time"] == ["mon", "tue", "wed"]
    assert found["snapshots"]["load"] == [5, 4, 2]
    assert found["num_cells"] == 6
    assert found["load_spread"]["gini"] == pytest.approx(slow_gini([5, 4, 2]))
    assert stats.sequences.counts == (1, 1, 1, 1)
    assert (stats.sequences.num_gaps, stats.sequences.num_nodes_with_gaps) == (1, 1)
    assert (stats.degrees.mean, stats.degrees.median, stats.degrees.max) == (5 / 6, 0, 3)
    assert (stats.load_spread.max_over_mean, stats.load_spread.max_over_min) == (5 / (11 / 3), 2.5)


def test_a_weight_that_changes_is_no_churn_but_costs_a_delta_its_edge() -> None:
    still = from_edges([[[0], [1]]] * 2, weights=np.array([[1], [1]], np.float32))
    moved = from_edges([[[0], [1]]] * 2, weights=np.array([[1], [2]], np.float32))
    assert describe(moved).snapshots[1].jaccard == 1.0
    assert describe(still).snapshots[1].delta_bytes == 0
    assert describe(moved).snapshots[1].delta_bytes == 12


def test_features_per_node_count_once_and_derived_ones_not_at_all() -> None:
    edges = [[[0], [1]]] * 3
    bare = describe(from_edges(edges))
    fixed = describe(from_edges(edges, x=np.ones((2, 5), np.float32)))
    derived = describe(from_edges(edges, x=Degrees()))
    assert fixed.full_bytes - bare.full_bytes == fixed.delta_bytes - bare.delta_bytes == 2 * 5 * 4
    assert (derived.full_bytes, derived.delta_bytes) == (bare.full_bytes, bare.delta_bytes)
    assert (bare.features, fixed.features, derived.features) == (None, "5 per node", "2 derived")


@pytest.mark.parametrize(
    "graph",
    [
        from_edges([]),
        from_edges([], num_nodes=3),
        from_edges([[[], []]], num_nodes=0),
        from_edges([[[], []]], num_nodes=1),
        from_edges([[[0], [0]], [[], []], [[0], [0]]], nodes=[[0], [], [0]]),
    ],
    ids=["nothing", "no snapshots", "no nodes", "one node", "one node that returns"],
)
def test_awkward_graphs_have_plain_numbers(graph: DynamicGraph) -> None:
    stats = describe(graph)
    assert_as_slow(stats, graph)
    assert json.loads(json.dumps(stats.to_dict(), allow_nan=False))["num_snapshots"] == len(graph)


def test_shares_of_nothing_are_nothing_and_empty_snapshots_are_alike() -> None:
    quiet = describe(from_edges([[[], []]] * 2, num_nodes=2)).snapshots[1]
    assert (quiet.new_share, quiet.dropped_share, quiet.jaccard) == (0.0, 0.0, 1.0)


def test_progress_reaches_the_number_of_snapshots() -> None:
    calls: list[tuple[int, int | None]] = []
    describe(example(), lambda done, total: calls.append((done, total)))
    assert calls == [(1, 3), (2, 3), (3, 3)]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12))
def test_gini_is_the_mean_difference(values: list[int]) -> None:
    assert gini(sorted(values)) == pytest.approx(slow_gini(values), abs=1e-12)
    counts = sorted(Counter(values).items())
    assert gini([v for v, _ in counts], [c for _, c in counts]) == pytest.approx(slow_gini(values), abs=1e-12)


def test_spread_of_equal_loads_is_none_at_all() -> None:
    assert Spread.from_values([3, 3, 3]) == Spread(max_over_mean=1.0, max_over_min=1.0, variation=0.0, gini=0.0)
    assert Spread.from_values([0, 2]).max_over_min is None
    assert Spread.from_values([]).gini is None


def test_the_tail_of_a_power_law_is_found() -> None:
    rng = np.random.default_rng(0)
    degree = np.floor(5.5 * rng.random(200_000) ** (-1 / 1.5) + 0.5).astype(np.int64)  # exponent 2.5 from 6 on
    counts = Counter(degree[degree < 10**6].tolist())
    values = np.array(sorted(counts))
    tail = fit_tail(values, np.array([counts[value] for value in values.tolist()]))
    assert tail is not None
    assert tail.exponent == pytest.approx(2.5, abs=0.03)
    assert tail.distance < 0.01
    assert fit_tail(np.arange(6), np.full(6, 1000)) is None


def test_log_bins_cover_every_degree_once() -> None:
    law = DegreeDistribution.from_counts(np.bincount([0] * 4 + [1] * 3 + [2] * 2 + [9, 1000]))
    assert law.bins[:6] == (0, 1, 2, 3, 4, 5)
    assert sorted(set(law.bins)) == list(law.bins)
    assert law.counts[:4] == (4, 3, 2, 0)
    assert sum(law.counts) == 11
    assert law.p99 == 1000
