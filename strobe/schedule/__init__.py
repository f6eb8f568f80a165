"""In which order, on which rank, batches run."""

from strobe.schedule.base import Schedule, Steps
from strobe.schedule.in_order import InOrder

__all__ = ["InOrder", "Schedule", "Steps"]
