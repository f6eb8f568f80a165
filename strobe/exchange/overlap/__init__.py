"""Overlap of row transfers with the computation of other snapshots: order, timing, transfers, strategy."""
