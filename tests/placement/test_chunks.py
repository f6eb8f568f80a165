from __future__ import annotations

import sys
from collections import Counter
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch

from strobe.errors import MissingPackageError, OptionError
from strobe.graph import DynamicGraph, from_edges
from strobe.graph.synthetic import Social
from strobe.ops.sparse.csr import IntArray
from strobe.placement import BySnapshot, Chunks, Hash, ModelCosts, Partition, Placement
from strobe.placement.algorithms.chunk_graph import (
    count_cell_loads,
    cut_bytes,
    link_cells,
    nodes_of_cells,
    sizes_of_chunks,
)
from strobe.placement.chunks import FINEST_GRANULARITY, REFINE_SLACK, Chunking
from strobe.placement.loads import loads_of_ranks
from strobe.placement.model_costs import CellSetSizes
from tests.support.graphs import AWKWARD
from tests.support.placement_cases import owners_of_cells

pytest.importorskip("pymetis")

SHUFFLED = ModelCosts(state_bytes=0, cell_bytes=256)
EVERY_WAY = [Chunks(), Chunks(assign="score", refine=False), Chunks(assign="cells")]

every_way = pytest.mark.parametrize("placement", EVERY_WAY, ids=str)


def social(seed: int = 0, **options: Any) -> DynamicGraph:
    """People in eight communities, some of whom come and go."""
    defaults = {"nodes": 240, "snapshots": 6, "edges": 700, "communities": 8, "inside": 0.9, **options}
    return Social(seed=seed, **defaults).write()


def cliques(count: int, size: int, num_snapshots: int) -> DynamicGraph:
    """Complete graphs that nothing joins."""
    pairs = [(at * size + a, at * size + b) for at in range(count) for a in range(size) for b in range(a)]
    return from_edges([np.array(pairs).T] * num_snapshots, num_nodes=count * size, directed=False)


def cost(graph: DynamicGraph, placed: Partition, work: ModelCosts) -> float:
    """Bytes in a pass forward."""
    links = link_cells(graph, work.arc_bytes, work.state_bytes)
    return cut_bytes(graph, links, owners_of_cells(graph, placed), placed.num_ranks, work)


def chunks_of(placed: Partition) -> IntArray:
    assert placed.cell_chunk is not None
    return placed.cell_chunk


@every_way
@pytest.mark.parametrize("work", [ModelCosts(), SHUFFLED], ids=["rows and states", "whole sequences wanted"])
def test_every_cell_is_in_one_chunk_and_every_chunk_on_one_rank(placement: Chunks, work: ModelCosts) -> None:
    graph = social()
    for windows in ([], [range(0, 3), range(3, 6)]):
        placed = placement.place(graph, windows, 3, costs=work)
        of_chunk = chunks_of(placed)
        assert of_chunk.shape == (graph.num_cells,)
        assert sorted(set(of_chunk.tolist())) == list(range(of_chunk.max() + 1))
        pairs = set(zip(of_chunk.tolist(), owners_of_cells(graph, placed).tolist(), strict=True))
        assert len(pairs) == of_chunk.max() + 1


@pytest.mark.parametrize("num_ranks", [1, 3])
@pytest.mark.parametrize("per_rank", [1, 8, 32])
def test_a_chunk_of_several_cells_is_a_small_part_of_a_ranks_load(per_rank: int, num_ranks: int) -> None:
    graph = social()
    of_chunk = chunks_of(Chunks(per_rank=per_rank).place(graph, [], num_ranks))
    size = count_cell_loads(graph)
    weighs, members = np.bincount(of_chunk, size), np.bincount(of_chunk)
    assert weighs[members > 1].max() <= size.sum() / (num_ranks * per_rank)
    assert len(weighs) >= num_ranks * per_rank


@pytest.mark.parametrize("work", [ModelCosts(), SHUFFLED], ids=["rows and states", "whole sequences wanted"])
def test_a_seed_gives_the_same_chunks_on_any_number_of_threads(work: ModelCosts) -> None:
    graph, found = social(), []
    for num_threads in (1, 2, 1):
        torch.set_num_threads(num_threads)
        placed = Chunks().place(graph, [range(0, 2)], 3, seed=7, costs=work)
        found.append((owners_of_cells(graph, placed).tolist(), chunks_of(placed).tolist()))
    assert found[0] == found[1] == found[2]


@every_way
def test_no_sequence_is_cut_where_only_states_travel(placement: Chunks) -> None:
    graph = social()
    placed = placement.place(graph, [], 3, costs=ModelCosts(arc_bytes=0))
    owner, nodes = owners_of_cells(graph, placed), nodes_of_cells(graph)
    ranks = Counter(node for node, _ in set(zip(nodes.tolist(), owner.tolist(), strict=True)))
    assert set(ranks.values()) == {1}


@every_way
def test_no_edge_is_cut_where_only_rows_travel_and_components_are_small(placement: Chunks) -> None:
    graph = cliques(8, 5, 4)
    work = ModelCosts(arc_bytes=1000, state_bytes=0)
    placed = placement.place(graph, [], 2, costs=work)
    assert cost(graph, placed, work) == 0
    of_ranks = loads_of_ranks(graph, placed, [range(4)])
    assert of_ranks.max() <= 1.15 * of_ranks.min()


@every_way
def test_ranks_are_even_in_every_window(placement: Chunks) -> None:
    graph = social(snapshots=9, start=0.3)
    windows = [range(0, 3), range(3, 6), range(6, 9)]
    of_ranks = loads_of_ranks(graph, placement.place(graph, windows, 3), windows)
    assert (of_ranks.max(1) <= 1.2 * of_ranks.min(1)).all()


def test_chunks_of_several_sizes_are_tried_and_smaller_ones_where_none_is_even(monkeypatch: pytest.MonkeyPatch) -> None:
    """One chunk for each of three ranks and four cliques of a kind: only parts of them are even."""
    graph, tried = cliques(4, 8, 3), []
    tried_once = Chunking._try

    def remember(self: Chunking, links: Any, grain: float) -> Any:
        tried.append(grain)
        return tried_once(self, links, grain)

    monkeypatch.setattr(Chunking, "_try", remember)
    monkeypatch.setattr("strobe.placement.chunks.GRANULARITIES", (0.5, 1.0))
    placed = Chunks(per_rank=1, assign="score", refine=False).place(graph, [], 3)
    assert tried == [0.5, 1.0, FINEST_GRANULARITY]
    of_ranks = loads_of_ranks(graph, placed, [range(3)])
    assert of_ranks.max() < 2 * of_ranks.min()


OTHERS: list[Placement] = [Hash(), BySnapshot()]


@pytest.mark.parametrize("other", OTHERS, ids=str)
@pytest.mark.parametrize("assign", ["metis", "cells"])
@pytest.mark.parametrize(
    "work", [ModelCosts(), ModelCosts(arc_bytes=32), SHUFFLED], ids=["even", "states are dear", "shuffled"]
)
def test_fewer_bytes_travel_than_with_plainer_placements(other: Placement, assign: Any, work: ModelCosts) -> None:
    graph = social()
    assert cost(graph, Chunks(assign=assign).place(graph, [], 4, costs=work), work) < cost(
        graph, other.place(graph, [], 4), work
    )


def test_a_cut_sequence_weighs_as_much_as_the_model_sends_there() -> None:
    """Where edges are dear few rows are read elsewhere, where states are dear few sequences are cut."""
    graph = social()
    rows, cuts = ModelCosts(arc_bytes=1, state_bytes=0), ModelCosts(arc_bytes=0, state_bytes=1)
    edges_dear, states_dear = (
        Chunks().place(graph, [], 4, costs=ModelCosts(arc_bytes=arc, state_bytes=state))
        for arc, state in ((999, 9), (9, 999))
    )
    assert cost(graph, edges_dear, rows) < 0.5 * cost(graph, states_dear, rows)
    assert cost(graph, states_dear, cuts) < 0.5 * cost(graph, edges_dear, cuts)


@pytest.mark.parametrize("assign", ["metis", "score", "cells"])
def test_moving_single_cells_saves_bytes_and_fills_no_rank(assign: Any) -> None:
    before, after = [], []
    for seed in range(6):
        graph, work, num_ranks = social(seed, inside=0.8), ModelCosts(), 2 + seed % 3
        links, size = link_cells(graph, work.arc_bytes, work.state_bytes), count_cell_loads(graph)
        owners = [
            Chunking(Chunks(assign=assign, refine=refine), graph, num_ranks, seed, work)._try(links, 1.0).assignment[0]
            for refine in (False, True)
        ]
        before.append(cut_bytes(graph, links, owners[0], num_ranks, work))
        after.append(cut_bytes(graph, links, owners[1], num_ranks, work))
        had, has = (np.bincount(owner, size, num_ranks) for owner in owners)
        assert (has <= np.maximum(had, REFINE_SLACK * had.mean() + 1)).all()
    assert all(now <= was for was, now in zip(before, after, strict=True))
    assert sum(after) < sum(before)


def test_loads_are_what_the_model_says_they_are() -> None:
    """Half of the cells have no arcs: ranks that share out arcs evenly do not share out cells evenly, and back."""
    dense = [(a, b) for a in range(30) for b in range(a) if (a + b) % 3]
    graph = from_edges([np.array(dense).T] * 4, num_nodes=130, directed=False)

    def arcs_only(sizes: CellSetSizes) -> Any:
        return sizes.arcs.astype(np.float64)

    def of_ranks(work: ModelCosts) -> CellSetSizes:
        return sizes_of_chunks(graph, owners_of_cells(graph, Chunks().place(graph, [], 2, costs=work)), 2)

    by_arcs, by_cells = (
        of_ranks(ModelCosts(load_model=arcs_only)),
        of_ranks(ModelCosts(load_model=lambda sizes: 1.0 * sizes.cells)),
    )
    assert by_arcs.arcs.max() < 1.2 * by_arcs.arcs.min()
    assert by_cells.cells.max() < 1.2 * by_cells.cells.min()
    assert by_cells.arcs.max() > 1.5 * by_cells.arcs.min()


def test_ranks_are_named_such_that_most_cells_stay_with_their_node_from_window_to_window() -> None:
    graph = social(snapshots=8)
    windows = [range(t, t + 2) for t in range(0, 8, 2)]
    owner = owners_of_cells(graph, Chunks().place(graph, windows, 3))
    nodes, last = nodes_of_cells(graph), np.full(graph.num_nodes, -1)
    for window in windows:
        here = slice(*graph.cell_ptr[[window.start, window.stop]].tolist())
        was = last[nodes[here]]
        stays = [int((was == np.array(names)[owner[here]]).sum()) for names in permutations(range(3))]
        assert stays[0] == max(stays)  # the names they have
        last[nodes[here]] = owner[here]


def test_one_rank_needs_no_metis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    graph = AWKWARD["isolated nodes"].build()
    assert not owners_of_cells(graph, Chunks().place(graph, [], 1)).any()
    Chunks(assign="score").place(graph, [], 2)
    with pytest.raises(MissingPackageError):
        Chunks().place(graph, [], 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"per_rank": 0}, "at least 1, not 0"),
        ({"rounds": 0}, "at least 1, not 0"),
        ({"assign": "luck"}, "metis or score or cells"),
    ],
    ids=str,
)
def test_invalid_options_raise(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Chunks(**options)
