"""Which rank owns each cell in the structure stage, and each sequence in the time stage."""

from strobe.placement.arriving import Arriving, AsTheyArrive
from strobe.placement.base import Placed, Placement
from strobe.placement.by_sequence import BySequence
from strobe.placement.by_snapshot import BySnapshot
from strobe.placement.chunks import Chunks
from strobe.placement.greedy import Greedy
from strobe.placement.hash import Hash
from strobe.placement.load_aware import LoadAware
from strobe.placement.metis import Metis
from strobe.placement.metis_per_snapshot import MetisPerSnapshot
from strobe.placement.metis_so_far import MetisSoFar
from strobe.placement.online import Online
from strobe.placement.replicated import Replicated
from strobe.placement.snapshot_then_sequence import SnapshotThenSequence
from strobe.placement.time_blocks import TimeBlocks
from strobe.placement.work import Work

__all__ = [
    "Arriving",
    "AsTheyArrive",
    "BySequence",
    "BySnapshot",
    "Chunks",
    "Greedy",
    "Hash",
    "LoadAware",
    "Metis",
    "MetisPerSnapshot",
    "MetisSoFar",
    "Online",
    "Placed",
    "Placement",
    "Replicated",
    "SnapshotThenSequence",
    "TimeBlocks",
    "Work",
]
