"""Sparse matrices by rows: construction, normalization, products, subgraphs, neighbor sampling."""
