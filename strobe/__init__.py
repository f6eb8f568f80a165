"""Strobe trains neural networks on graphs that change over time, on one core or on a cluster."""

from strobe.errors import StrobeError
from strobe.graph import DynamicGraph, Snapshot
from strobe.graph import open_graph as open

__version__ = "0.1.0"

__all__ = ["DynamicGraph", "Snapshot", "StrobeError", "__version__", "open"]
