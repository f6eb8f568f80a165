"""Threads, memory and compilation for operations on the CPU."""
