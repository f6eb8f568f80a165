"""Packing batches of several windows into steps so that all ranks finish a step together."""
