"""Compiled loops over graphs: degrees, pairs, label propagation, column statistics, index checks."""
