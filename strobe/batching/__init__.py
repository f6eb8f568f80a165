"""Which cells a step trains."""

from strobe.batching.base import Batch, Batching
from strobe.batching.full import Full
from strobe.batching.fused import Fused
from strobe.batching.groups import Groups
from strobe.batching.hybrid import Hybrid
from strobe.batching.sampled import Sampled
from strobe.batching.trapezoid import Trapezoid
from strobe.batching.vertices import Vertices
from strobe.batching.windows import Windows

__all__ = ["Batch", "Batching", "Full", "Fused", "Groups", "Hybrid", "Sampled", "Trapezoid", "Vertices", "Windows"]
