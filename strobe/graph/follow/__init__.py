"""Following: sources to which events or snapshots are added, and the graph on disk that grows by them."""

from strobe.graph.follow.base import Counts, Following
from strobe.graph.follow.choice import follow

__all__ = ["Counts", "Following", "follow"]
