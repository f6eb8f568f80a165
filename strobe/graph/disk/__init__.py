"""Graphs on disk: saved graphs, growing graphs, their metadata and verification."""
