"""In which order, on which rank, batches run."""

from strobe.schedule.balanced import Balanced
from strobe.schedule.base import Schedule
from strobe.schedule.costs import Costs, Solved, Steps
from strobe.schedule.free_running import FreeRunning
from strobe.schedule.greedy import Greedy
from strobe.schedule.in_order import InOrder
from strobe.schedule.optimal import Optimal
from strobe.schedule.packing import Packing
from strobe.schedule.random_split import RandomSplit

__all__ = [
    "Balanced",
    "Costs",
    "FreeRunning",
    "Greedy",
    "InOrder",
    "Optimal",
    "Packing",
    "RandomSplit",
    "Schedule",
    "Solved",
    "Steps",
]
