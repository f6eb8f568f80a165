"""The view a model is written against: the cells it is given, what they read, and their past."""

from strobe.view.data.subgraph import KHopCache, ModelReads, SubgraphData
from strobe.view.data.window import WindowData
from strobe.view.pair_ends import (
    LatestCells,
    PairEnds,
    PairRows,
    find_batch_rows,
    find_grid_rows,
    find_pair_rows,
    gather_latest,
    save_latest,
)
from strobe.view.partition.local import LocalPartition, Owners
from strobe.view.view import Carry, View

__all__ = [
    "Carry",
    "KHopCache",
    "LatestCells",
    "LocalPartition",
    "ModelReads",
    "Owners",
    "PairEnds",
    "PairRows",
    "SubgraphData",
    "View",
    "WindowData",
    "find_batch_rows",
    "find_grid_rows",
    "find_pair_rows",
    "gather_latest",
    "save_latest",
]
