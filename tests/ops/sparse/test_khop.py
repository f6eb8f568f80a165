from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.engine.partitioned_graph import khop_masks
from strobe.errors import InputError, OptionError
from strobe.graph import DynamicGraph
from strobe.graph.storage import ArrayStorage
from strobe.graph.synthetic import Social
from strobe.ops.sparse import khop
from strobe.ops.sparse.csr import Csr, transpose
from strobe.ops.sparse.khop import ArcRows, KHopSubgraph, SnapshotCsr, khop_subgraph
from strobe.ops.sparse.normalize import Norm, normalize
from tests.support.graphs import AWKWARD, PlainGraph, dynamic_graphs
from tests.support.unshared import without_sharing

slow_at_first = settings(deadline=None)  # the first call compiles
hops_of = st.integers(0, 3)
Arc = tuple[int, float | None]


def blocks_of(graph: DynamicGraph, *, both: bool = False) -> SnapshotCsr:
    stored = without_sharing(graph).storage
    assert isinstance(stored, ArrayStorage)
    rows = ArcRows(stored.arc_ptr, stored.row_ptr, stored.col, stored.weight)
    blocks = SnapshotCsr(stored.num_nodes, stored.cell_ptr, rows, stored.node)
    if not both:
        return blocks
    row_ptr, col, weight = np.empty_like(rows.row_ptr), np.empty_like(rows.col), np.empty_like(rows.weight)
    blocks = replace(blocks, out=ArcRows(rows.arc_ptr, row_ptr, col, None if rows.weight is None else weight))
    for t in range(len(graph)):
        ptr, cols, weights = blocks.block(t)
        out_ptr, out_cols, out_weights = blocks.block(t, out=True)
        out_ptr[:], out_cols[:], at = transpose(ptr, cols, len(ptr) - 1)
        if weights is not None and out_weights is not None:
            out_weights[:] = weights[at]
    return blocks


def distances(plain: PlainGraph, t: int, targets: list[int], hops: int, out: bool) -> dict[int, int]:
    """How far every node that takes part is from the targets, the slow way."""
    found = {v: 0 for v in plain.present(t) if v in targets}
    for hop in range(1, hops + 1):
        inner = set(found)
        for destination, source, _ in plain.arcs(t):
            if destination in inner:
                found.setdefault(source, hop)
            if out and source in inner:
                found.setdefault(destination, hop)
    return found


def rows_read(plain: PlainGraph, t: int, inner: set[int], out: bool) -> dict[int, list[Arc]]:
    """What every node of the inner ones reads: along arcs that reach it, or that leave it."""
    found: dict[int, list[Arc]] = {v: [] for v in inner}
    for destination, source, weight in plain.arcs(t):
        reader, read = (source, destination) if out else (destination, source)
        if reader in inner:
            found[reader].append((read, weight if plain.weighted else None))
    return found


def shown_rows(blocks: SnapshotCsr, t: int, out: bool) -> dict[int, list[Arc]]:
    """What rows of a block hold, by id of node."""
    assert blocks.node is not None
    nodes = blocks.node[blocks.cell_ptr[t] : blocks.cell_ptr[t + 1]].tolist()
    row_ptr, col, weight = blocks.block(t, out=out)
    assert len(row_ptr) == len(nodes) + 1
    assert row_ptr[0] == 0
    assert row_ptr[-1] == len(col)
    return {
        v: [(nodes[col[j]], None if weight is None else float(weight[j])) for j in range(row_ptr[i], row_ptr[i + 1])]
        for i, v in enumerate(nodes)
    }


def check(plain: PlainGraph, graph: DynamicGraph, times: list[int], targets: list[int], hops: int, out: bool) -> None:
    """All that is found is what the slow way finds."""
    found = khop_subgraph(blocks_of(graph, both=out), times, np.array(targets, np.int64), hops, out=out)
    assert len(found.blocks.cell_ptr) == len(times) + 1
    for at, t in enumerate(times):
        here = slice(*found.blocks.cell_ptr[at : at + 2].tolist())
        nodes, expected = plain.present(t), distances(plain, t, targets, hops, out)
        assert [nodes[p] for p in found.position[here]] == sorted(expected)
        assert found.cell[here].tolist() == [graph.cell(v, t) for v in sorted(expected)]
        assert dict(zip(sorted(expected), found.distance[here].tolist(), strict=True)) == expected
        inner = {v for v, distance in expected.items() if distance < hops}
        outer: dict[int, list[Arc]] = {v: [] for v in set(expected) - inner}
        assert shown_rows(found.blocks, at, False) == rows_read(plain, t, inner, False) | outer
        if out:
            assert shown_rows(found.blocks, at, True) == rows_read(plain, t, inner, True) | outer
        else:
            assert found.blocks.out is None


@slow_at_first
@given(st.data(), dynamic_graphs(carried=False, max_nodes=8, max_edges=12), hops_of, st.booleans())
def test_cells_arcs_weights_and_distances_are_those_of_the_slow_way(
    data: st.DataObject, plain: PlainGraph, hops: int, out: bool
) -> None:
    num = len(plain.snapshots)
    times = data.draw(st.lists(st.integers(0, num - 1), max_size=4) if num else st.just([]))
    nodes = st.lists(st.integers(0, plain.num_nodes - 1), max_size=4) if plain.num_nodes else st.just([])
    check(plain, plain.build(), times, data.draw(nodes), hops, out)


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_graphs_have_surroundings(name: str) -> None:
    """Empty snapshots, isolated nodes, self loops, parallel edges, nodes that are away."""
    plain = AWKWARD[name]
    graph, everyone = plain.build(), list(range(plain.num_nodes))
    for targets in ([], everyone[:1], everyone[-1:], everyone):
        for hops in range(4):
            for out in (False, True):
                check(plain, graph, list(range(len(graph))), targets, hops, out)


def social(**options: Any) -> DynamicGraph:
    """Large enough that few of a snapshot's cells are sorted and many are swept up."""
    return Social(nodes=4_000, snapshots=3, edges=9_000, away=0.1, **options).write()


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("share", [0.0005, 0.05, 0.5])
@pytest.mark.parametrize("hops", [0, 1, 2, 3])
def test_the_cells_are_those_that_a_batch_of_nodes_takes_with_it(directed: bool, share: float, hops: int) -> None:
    graph = social(directed=directed)
    targets = np.random.default_rng(0).choice(4_000, int(share * 4_000), replace=False)
    found = khop_subgraph(blocks_of(graph, both=directed), range(1, 3), targets, hops, out=directed)
    expected = khop_masks(graph, range(1, 3), targets, hops)
    for at, mask in enumerate(expected):
        here = slice(*found.blocks.cell_ptr[at : at + 2].tolist())
        assert found.position[here].tolist() == np.flatnonzero(mask).tolist()


def stacked(graph: DynamicGraph, csrs: list[Csr]) -> SnapshotCsr:
    """Matrices of all snapshots as blocks."""
    none = np.empty(0, np.int32)
    row_ptrs, cols, weights = zip(*csrs, strict=True) if csrs else ([], [], [])
    arc_ptr = np.cumsum([0, *map(len, cols)])
    weight = None if any(each is None for each in weights) else np.concatenate([np.empty(0), *weights])
    rows = ArcRows(arc_ptr, np.concatenate([none, *row_ptrs]), np.concatenate([none, *cols]), weight)
    stored = without_sharing(graph).storage
    assert isinstance(stored, ArrayStorage)
    return SnapshotCsr(graph.num_nodes, graph.cell_ptr, rows, stored.node)


def product(blocks: SnapshotCsr, t: int, x: Any, *, out: bool = False) -> Any:
    row_ptr, col, weight = blocks.block(t, out=out)
    values = np.ones(len(col)) if weight is None else weight.astype(np.float64)
    return sp.csr_array((values, col, row_ptr), shape=(len(x), len(x))) @ x


def targets_of(found: KHopSubgraph, at: int) -> tuple[Any, Any]:
    """Of one snapshot: where all cells stand in the whole, and which of them are targets."""
    here = slice(*found.blocks.cell_ptr[at : at + 2].tolist())
    return found.position[here], found.distance[here] == 0


@slow_at_first
@given(
    st.data(),
    dynamic_graphs(carried=False, min_snapshots=1, max_nodes=8, max_edges=12),
    st.integers(1, 3),
    st.sampled_from(["gcn", "mean", "sum", "loops", "sym"]),
)
def test_targets_get_exactly_what_they_get_in_the_whole_graph(
    data: st.DataObject, plain: PlainGraph, hops: int, norm: Norm
) -> None:
    graph = plain.build()
    whole = stacked(graph, [normalize(norm, shot.row_ptr, shot.col, shot.weight) for shot in graph])
    targets = data.draw(st.sets(st.integers(0, max(plain.num_nodes - 1, 0)))) if plain.num_nodes else []
    found = khop_subgraph(whole, range(len(graph)), np.array(sorted(targets), np.int64), hops)
    for t in range(len(graph)):
        there, is_target = targets_of(found, t)
        x = np.random.default_rng(t).normal(size=(graph[t].num_nodes, 3))
        y = x[there]
        for _ in range(hops):
            x, y = product(whole, t, x), product(found.blocks, t, y)
        np.testing.assert_array_equal(y[is_target], x[there][is_target])


@slow_at_first
@given(dynamic_graphs(carried=False, min_snapshots=1, max_nodes=8, max_edges=12), st.lists(st.booleans(), max_size=3))
def test_products_may_read_along_arcs_either_way_in_any_order(plain: PlainGraph, ways: list[bool]) -> None:
    graph = plain.build()
    whole = blocks_of(graph, both=True)
    found = khop_subgraph(whole, range(len(graph)), np.arange(plain.num_nodes)[:2], len(ways), out=True)
    for t in range(len(graph)):
        there, is_target = targets_of(found, t)
        x = np.random.default_rng(t).normal(size=(graph[t].num_nodes, 3))
        y = x[there]
        for out in ways:
            x, y = product(whole, t, x, out=out), product(found.blocks, t, y, out=out)
        np.testing.assert_array_equal(y[is_target], x[there][is_target])


def test_surroundings_within_surroundings_are_those_of_the_whole() -> None:
    """What is found is laid out as what is searched: a batch can be cut out of what a rank has."""
    graph, some = social(), np.arange(0, 4_000, 7)
    whole = blocks_of(graph)
    wider = khop_subgraph(whole, [1, 2], some, 2).blocks
    inside, direct = khop_subgraph(wider, [0, 1], some[::3], 2), khop_subgraph(whole, [1, 2], some[::3], 2)
    assert inside.blocks.node is not None
    assert direct.blocks.node is not None
    assert inside.blocks.node.tolist() == direct.blocks.node.tolist()
    assert inside.blocks.reads.row_ptr.tolist() == direct.blocks.reads.row_ptr.tolist()
    assert inside.blocks.reads.col.tolist() == direct.blocks.reads.col.tolist()
    assert inside.distance.tolist() == direct.distance.tolist()


def test_threads_do_not_disturb_each_other() -> None:
    blocks = blocks_of(social())

    def found(first: int) -> Any:
        return khop_subgraph(blocks, range(3), np.arange(first, 4_000, 40), 2).blocks.reads.col.tolist()

    alone = [found(first) for first in range(8)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert list(pool.map(found, range(8))) == alone


def test_what_went_wrong_once_does_not_spoil_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks, targets = blocks_of(social()), np.arange(50)
    expected = khop_subgraph(blocks, range(3), targets, 1)

    def fails(*given: Any) -> None:
        given[2][:] = 7  # a number for every cell is left behind
        raise MemoryError

    monkeypatch.setattr(khop, "_copy_rows", fails)
    with pytest.raises(MemoryError):
        khop_subgraph(blocks, range(3), targets, 1)
    monkeypatch.undo()
    again = khop_subgraph(blocks, range(3), targets, 1)
    assert again.position.tolist() == expected.position.tolist()
    assert again.blocks.reads.col.tolist() == expected.blocks.reads.col.tolist()


@pytest.mark.parametrize(
    ("time", "node", "hops", "named"),
    [(0, -1, 1, "-1"), (0, 3, 1, "3"), (-1, 0, 1, "-1"), (1, 0, 1, "1"), (0, 0, -1, "-1")],
)
def test_unknown_nodes_snapshots_and_hops_are_refused(time: int, node: int, hops: int, named: str) -> None:
    with pytest.raises(OptionError if hops < 0 else InputError, match=named):
        khop_subgraph(blocks_of(AWKWARD["parallel edges"].build()), [time], np.array([0, node]), hops)


def test_arcs_that_leave_are_followed_only_where_they_are_known() -> None:
    blocks = blocks_of(AWKWARD["parallel edges"].build())
    with pytest.raises(InputError, match="outgoing arcs are missing"):
        khop_subgraph(blocks, [0], np.array([0]), 1, out=True)


def test_numba_is_not_loaded_with_the_package() -> None:
    code = "import sys, strobe, strobe.registry, strobe.engine.train, strobe.placement as p, strobe.schedule as s; "
    code += "p.Chunks(), s.Greedy(), s.Optimal(); print('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
