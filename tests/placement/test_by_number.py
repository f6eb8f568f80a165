"""Placements by number: ``by-snapshot``, ``by-sequence`` and ``snapshot-then-sequence``."""

from __future__ import annotations

from strobe.placement import BySequence, BySnapshot, SnapshotThenSequence
from tests.support.placement_cases import chain


def test_nodes_go_to_ranks_in_order_as_many_each() -> None:
    assert BySequence().place(chain([6, 2]), [], 3).node_owner.tolist() == [0, 0, 1, 1, 2, 2]


def test_snapshots_go_to_ranks_round_robin_or_in_blocks_of_every_window() -> None:
    assert BySnapshot().place(chain([1] * 5), [], 3).snapshot_owner.tolist() == [0, 1, 2, 0, 1]
    placed = BySnapshot(round_robin=False).place(chain([9, 1, 1, 1, 1, 1, 1]), [range(1, 5)], 2)
    assert placed.snapshot_owner.tolist() == [0, 0, 0, 1, 1, 0, 1]


def test_snapshots_and_sequences_have_owners_of_their_own() -> None:
    placed = SnapshotThenSequence().place(chain([6, 6, 6, 6]), [range(4)], 2)
    assert placed.snapshot_owner.tolist() == [0, 0, 1, 1]
    assert placed.sequence_owner is not None
    assert placed.sequence_owner.tolist() == [0, 0, 0, 1, 1, 1]
