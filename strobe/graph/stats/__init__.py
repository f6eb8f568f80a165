"""What a dynamic graph looks like: sizes, churn, degrees, sequences, bytes and unevenness, exact and in one pass."""

from strobe.graph.stats.degrees import DegreeLaw, Tail
from strobe.graph.stats.describe import describe
from strobe.graph.stats.sequences import SequenceStats
from strobe.graph.stats.spread import Spread, gini
from strobe.graph.stats.values import GraphStats, SnapshotStats

__all__ = ["DegreeLaw", "GraphStats", "SequenceStats", "SnapshotStats", "Spread", "Tail", "describe", "gini"]
