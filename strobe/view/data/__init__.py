"""Cells, matrices and features of a window, by how they were selected: window, subgraph, sampled, truncated."""
