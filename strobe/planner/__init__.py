"""What training will cost, known before it starts: measured on this machine, and learned from the measurements."""

from strobe.planner.learned import learned_loads, predictor
from strobe.planner.workload import Predictor, fit

__all__ = ["Predictor", "fit", "learned_loads", "predictor"]
