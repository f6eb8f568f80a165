"""What holds for every placement, on every awkward graph."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.placement import (
    BySequence,
    BySnapshot,
    Chunks,
    Greedy,
    Hash,
    LoadAware,
    Metis,
    MetisPerSnapshot,
    MetisSoFar,
    Online,
    Partition,
    Placement,
    Replicated,
    SnapshotThenSequence,
    TimeBlocks,
)
from strobe.registry import AXES, make_strategy
from tests.support.graphs import AWKWARD, PlainGraph
from tests.support.placement_cases import owned

PLACEMENTS: list[Placement] = [
    Hash(),
    Metis(),
    Metis(chunks=3),
    MetisPerSnapshot(),
    MetisSoFar(),
    Greedy(),
    Online(),
    Online(window=1, price="total"),
    BySnapshot(),
    BySnapshot(round_robin=False),
    BySequence(),
    SnapshotThenSequence(),
    TimeBlocks(),
    TimeBlocks(parts=1),
    TimeBlocks(parts=2),
    Chunks(),
    Chunks(assign="score", refine=False),
    Chunks(assign="cells", per_rank=2),
    LoadAware(),
    Replicated(),
]
VIEWS: dict[str, tuple[Callable[[DynamicGraph], DynamicGraph], Callable[[PlainGraph], PlainGraph]]] = {
    "later": (lambda graph: graph[1:], lambda plain: plain.slice(slice(1, None))),
    "every other": (lambda graph: graph[::2], lambda plain: plain.slice(slice(None, None, 2))),
    "some nodes": (
        lambda graph: graph.subset(range(0, graph.num_nodes, 2)),
        lambda plain: plain.subset(range(0, plain.num_nodes, 2)),
    ),
}
NUM_RANKS = (1, 2, 4, 10)
SNAPSHOT, SEQUENCE = 0, 1  # of a cell (t, node)

every_placement = pytest.mark.parametrize("placement", PLACEMENTS, ids=str)
every_graph = pytest.mark.parametrize("graph", [plain.build() for plain in AWKWARD.values()], ids=list(AWKWARD))


def windows_of(graph: DynamicGraph) -> list[list[range]]:
    """No window; one; one that leaves snapshots out on both sides; one for each snapshot."""
    num = len(graph)
    return [[], [range(num)], [range(num // 3, num - num // 3)], [range(t, t + 1) for t in range(num)]]


def test_every_registered_placement_is_under_contract() -> None:
    assert {type(placement) for placement in PLACEMENTS} == set(AXES["placement"].values())


@every_placement
@every_graph
def test_every_cell_and_every_sequence_has_one_owner(placement: Placement, graph: DynamicGraph) -> None:
    for num_ranks in NUM_RANKS:
        for windows in windows_of(graph):
            placed = placement.place(graph, windows, num_ranks, seed=3)
            assert placed.num_ranks == num_ranks
            of_sequence = placed.with_sequence_owner(graph).sequence_owner
            assert of_sequence is not None
            assert of_sequence.shape == (graph.num_nodes,)
            of_cells = [placed.owners(graph, t) for t in range(len(graph))]
            assert [len(owners) for owners in of_cells] == [snapshot.num_nodes for snapshot in graph]
            assert all(((owners >= 0) & (owners < num_ranks)).all() for owners in (of_sequence, *of_cells))


@every_placement
@every_graph
def test_the_same_seed_gives_the_same_owners(placement: Placement, graph: DynamicGraph) -> None:
    first, again = (placement.place(graph, [], 4, seed=5) for _ in range(2))
    assert owned(graph, first) == owned(graph, again)


@every_placement
@every_graph
def test_what_is_promised_is_given_and_nothing_is_called_whole_that_is_not(
    placement: Placement, graph: DynamicGraph
) -> None:
    for num_ranks in NUM_RANKS[1:]:
        placed = placement.place(graph, [], num_ranks)
        assert placed.replicated == ("replicas" in placement.gives)
        assert placed.whole_snapshots or "whole snapshots" not in placement.gives
        assert placed.whole_sequences or "whole sequences" not in placement.gives
        assert not placed.whole_snapshots or _whole(graph, placed, by=SNAPSHOT)
        assert not placed.whole_sequences or _whole(graph, placed, by=SEQUENCE)
        if "whole sequences" in placement.gives:
            of_sequence = placed.with_sequence_owner(graph).sequence_owner
            assert of_sequence is not None
            assert all(of_sequence[v] == owner for (_, v), owner in owned(graph, placed).items())


@every_placement
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_placed_as_a_graph_of_its_own(placement: Placement, view: str) -> None:
    of_graph, of_plain = VIEWS[view]
    for plain in AWKWARD.values():
        shown, copied = of_graph(plain.build()), of_plain(plain).build()
        assert owned(shown, placement.place(shown, [], 2)) == owned(copied, placement.place(copied, [], 2))


@every_placement
def test_a_placement_survives_json(placement: Placement) -> None:
    assert make_strategy("placement", json.loads(json.dumps(placement.to_json()))) == placement


INVALID: list[tuple[type[Placement], dict[str, Any]]] = [
    (Metis, {"chunks": -1}),
    (TimeBlocks, {"parts": 0}),
    (LoadAware, {"layers": 0}),
    (Online, {"window": 0}),
    (Online, {"segments": 0}),
    (Online, {"capacity": 0}),
    (Online, {"sweeps": -1}),
    (Online, {"slack": 0.9}),
    (Online, {"eta": 0.5}),
]


@pytest.mark.parametrize(("placement", "options"), INVALID, ids=str)
def test_options_out_of_range_raise(placement: type[Placement], options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="at least"):
        placement(**options)


def _whole(graph: DynamicGraph, placed: Partition, *, by: int) -> bool:
    """Whether all cells (t, node) that agree in one of both have one owner."""
    pairs = {(cell[by], owner) for cell, owner in owned(graph, placed).items()}
    return len(pairs) == len({key for key, _ in pairs})
