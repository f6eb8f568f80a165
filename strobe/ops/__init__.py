"""Sparse and sequence kernels as pure functions."""
