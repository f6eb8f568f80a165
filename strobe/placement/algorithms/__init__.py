"""Algorithms of placements: METIS, blocks of snapshots, graphs of chunks, kernels of online placement."""
