from __future__ import annotations

from strobe.placement import BySnapshot
from tests.support.placement_cases import chain


def test_snapshots_are_dealt_in_turn() -> None:
    assert BySnapshot().place(chain([1] * 5), [], 3).snapshot_owner.tolist() == [0, 1, 2, 0, 1]


def test_blocks_have_as_many_snapshots_whatever_they_cost() -> None:
    graph = chain([9, 1, 1, 1, 1, 1])
    assert BySnapshot(round_robin=False).place(graph, [], 3).snapshot_owner.tolist() == [0, 0, 1, 1, 2, 2]


def test_every_window_has_blocks_of_its_own() -> None:
    placed = BySnapshot(round_robin=False).place(chain([1] * 7), [range(1, 5)], 2)
    assert placed.snapshot_owner.tolist() == [0, 0, 0, 1, 1, 0, 1]
