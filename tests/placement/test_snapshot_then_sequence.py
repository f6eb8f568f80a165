from __future__ import annotations

from strobe.placement import SnapshotThenSequence
from tests.support.placement_cases import chain


def test_snapshots_and_sequences_have_owners_of_their_own() -> None:
    placed = SnapshotThenSequence().place(chain([6, 6, 6, 6]), [range(4)], 2)
    assert placed.snapshot_owner.tolist() == [0, 0, 1, 1]
    assert placed.sequence_owner is not None
    assert placed.sequence_owner.tolist() == [0, 0, 0, 1, 1, 1]
