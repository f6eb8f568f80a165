"""Strobe trains neural networks on graphs that change over time, on one core or on a cluster."""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if "torch" not in sys.modules:
    # Torch's idle threads spin on cores that others could use unless OpenMP is configured to let them sleep.
    # OpenMP reads this once, when torch is loaded. Epochs of small graphs take a third less time.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from strobe.errors import StrobeError

if TYPE_CHECKING:
    from strobe.api import predict_links, train
    from strobe.graph import DynamicGraph, Snapshot, from_edges, from_pyg, from_scipy
    from strobe.graph import open_graph as open
    from strobe.graph.datasets import load
    from strobe.graph.ingest import ingest

__version__ = "0.1.0"

__all__ = [
    "DynamicGraph",
    "Snapshot",
    "StrobeError",
    "__version__",
    "from_edges",
    "from_pyg",
    "from_scipy",
    "ingest",
    "load",
    "open",
    "predict_links",
    "train",
]

_LATER = {
    **dict.fromkeys(("DynamicGraph", "Snapshot", "from_edges", "from_pyg", "from_scipy", "open"), "strobe.graph"),
    "ingest": "strobe.graph.ingest",
    "load": "strobe.graph.datasets",
    "predict_links": "strobe.api",
    "train": "strobe.api",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Import what needs numpy, torch and other packages on first use."""
    if name not in _LATER:
        raise AttributeError(f"module 'strobe' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), "open_graph" if name == "open" else name)
