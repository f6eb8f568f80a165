"""The dynamic graph: what it is, where it comes from, how it is kept."""

from strobe.graph.build import Edges, GraphBuilder
from strobe.graph.convert import (
    from_edges,
    from_pyg,
    from_scipy,
    from_signal,
    to_edges,
    to_pyg,
    to_scipy,
    to_signal,
)
from strobe.graph.disk.directory import DiskSink
from strobe.graph.disk.growing import GrowingGraph
from strobe.graph.disk.open import open_graph
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import Concatenated, Degrees, FeatureProvider, PerCell, RandomSignature, Standardized, Static
from strobe.graph.names import NodeNames
from strobe.graph.snapshot import Snapshot

__all__ = [
    "Concatenated",
    "Degrees",
    "DiskSink",
    "DynamicGraph",
    "Edges",
    "FeatureProvider",
    "GraphBuilder",
    "GrowingGraph",
    "NodeNames",
    "PerCell",
    "RandomSignature",
    "Snapshot",
    "Standardized",
    "Static",
    "from_edges",
    "from_pyg",
    "from_scipy",
    "from_signal",
    "open_graph",
    "to_edges",
    "to_pyg",
    "to_scipy",
    "to_signal",
]
