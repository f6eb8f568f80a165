"""Batching axis: which cells each optimizer step trains."""

from typing import TYPE_CHECKING

from strobe.batching.base import Batching, BatchSpec
from strobe.strategy import lazy_strategies

if TYPE_CHECKING:
    from strobe.batching.fused import Fused
    from strobe.batching.sampled import Sampled
    from strobe.batching.snapshots import Full, Groups, Windows
    from strobe.batching.trapezoid import Trapezoid
    from strobe.batching.vertices import Hybrid, Vertices

__all__ = [
    "BatchSpec",
    "Batching",
    "Full",
    "Fused",
    "Groups",
    "Hybrid",
    "Sampled",
    "Trapezoid",
    "Vertices",
    "Windows",
]

__getattr__ = lazy_strategies(__name__)
