"""Metrics and predictions of a run."""
