"""Statistics of a dynamic graph: sizes, churn, degrees, sequences, bytes and imbalance, exact and in one pass."""

from strobe.graph.stats.churn import SequenceStats
from strobe.graph.stats.describe import GraphStats, SnapshotStats, describe
from strobe.graph.stats.distributions import DegreeDistribution, PowerLawTail, Spread, gini

__all__ = [
    "DegreeDistribution",
    "GraphStats",
    "PowerLawTail",
    "SequenceStats",
    "SnapshotStats",
    "Spread",
    "describe",
    "gini",
]
