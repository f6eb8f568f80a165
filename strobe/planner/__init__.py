"""Predicted costs of training: memory, seconds and communication, from short measurements on this machine."""

from strobe.planner.time.predictor import WorkloadPredictor, fit_predictor
from strobe.planner.time.predictor_cache import get_predicted_loads, get_predictor

__all__ = ["WorkloadPredictor", "fit_predictor", "get_predicted_loads", "get_predictor"]
