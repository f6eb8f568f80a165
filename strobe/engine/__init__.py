"""The engine: trains, evaluates, predicts, saves and records."""

from strobe.engine.diverged import DivergedError
from strobe.engine.evaluate import Evaluation, evaluate
from strobe.engine.progress import Progress
from strobe.engine.run import Run, open_run
from strobe.engine.settings import Settings
from strobe.engine.train import train

__all__ = ["DivergedError", "Evaluation", "Progress", "Run", "Settings", "evaluate", "open_run", "train"]
