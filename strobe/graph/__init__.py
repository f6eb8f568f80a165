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
from strobe.graph.disk import DiskSink, open_graph
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import Beside, Carrier, Degrees, PerCell, Signature, Standardised, Static
from strobe.graph.growing import Growing
from strobe.graph.names import NodeNames
from strobe.graph.snapshot import Snapshot

__all__ = [
    "Beside",
    "Carrier",
    "Degrees",
    "DiskSink",
    "DynamicGraph",
    "Edges",
    "GraphBuilder",
    "Growing",
    "NodeNames",
    "PerCell",
    "Signature",
    "Snapshot",
    "Standardised",
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
