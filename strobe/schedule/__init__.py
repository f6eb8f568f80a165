"""Schedule axis: in which order, and on which rank, batches run."""

from typing import TYPE_CHECKING

from strobe.schedule.base import Schedule
from strobe.schedule.costs import Costs, Solution, Steps
from strobe.schedule.packing.base import BinPacking
from strobe.strategy import lazy_strategies

if TYPE_CHECKING:
    from strobe.schedule.greedy import Greedy
    from strobe.schedule.in_order import FreeRunning, InOrder, RandomSplit
    from strobe.schedule.optimal import Balanced, Optimal

__all__ = [
    "Balanced",
    "BinPacking",
    "Costs",
    "FreeRunning",
    "Greedy",
    "InOrder",
    "Optimal",
    "RandomSplit",
    "Schedule",
    "Solution",
    "Steps",
]

__getattr__ = lazy_strategies(__name__)
