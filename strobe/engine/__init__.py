"""Training, evaluation and prediction: runs any plan, and names no system."""

from strobe.engine.progress import Progress
from strobe.engine.run import Evaluation, Run, evaluate
from strobe.engine.settings import DivergedError, Settings

__all__ = ["DivergedError", "Evaluation", "Progress", "Run", "Settings", "evaluate"]
