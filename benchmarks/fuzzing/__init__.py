"""Fuzz targets: what ``benchmarks/fuzz.py`` feeds with random inputs, and the processes it does so in."""
