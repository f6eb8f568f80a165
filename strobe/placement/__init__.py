"""Placement axis: which rank owns each cell in the structure stage and each sequence in the time stage."""

from typing import TYPE_CHECKING

from strobe.placement.base import Partition, Placement, PlacementRequest
from strobe.placement.model_costs import ModelCosts
from strobe.placement.streaming import StreamingPartitioner, StreamingPlacement
from strobe.strategy import lazy_strategies

if TYPE_CHECKING:
    from strobe.placement.by_number import BySequence, BySnapshot, Replicated, SnapshotThenSequence
    from strobe.placement.chunks import Chunks
    from strobe.placement.hash import Hash
    from strobe.placement.load_aware import LoadAware
    from strobe.placement.metis import Greedy, Metis, MetisPerSnapshot, MetisSoFar
    from strobe.placement.online import Online
    from strobe.placement.time_blocks import TimeBlocks

__all__ = [
    "BySequence",
    "BySnapshot",
    "Chunks",
    "Greedy",
    "Hash",
    "LoadAware",
    "Metis",
    "MetisPerSnapshot",
    "MetisSoFar",
    "ModelCosts",
    "Online",
    "Partition",
    "Placement",
    "PlacementRequest",
    "Replicated",
    "SnapshotThenSequence",
    "StreamingPartitioner",
    "StreamingPlacement",
    "TimeBlocks",
]

__getattr__ = lazy_strategies(__name__)
