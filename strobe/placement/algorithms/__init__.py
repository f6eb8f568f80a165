"""Algorithms of placements: METIS, blocks of snapshots, chunks of cells, price-based partitioning."""
