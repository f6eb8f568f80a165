"""Sync axis: how ranks combine gradients or weights."""

from typing import TYPE_CHECKING

from strobe.strategy import lazy_strategies
from strobe.sync.base import GradientSync, Sync, average_buffers

if TYPE_CHECKING:
    from strobe.sync.all_reduce import AllReduce
    from strobe.sync.average import Average

__all__ = [
    "AllReduce",
    "Average",
    "GradientSync",
    "Sync",
    "average_buffers",
]

__getattr__ = lazy_strategies(__name__)
