"""Following: sources to which events or snapshots are added, and the growing graph built from them."""

from strobe.graph.follow.base import Follower, RowCounts
from strobe.graph.follow.resolve import follow

__all__ = ["Follower", "RowCounts", "follow"]
