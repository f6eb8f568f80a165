"""The state of a run, and checkpoints of it on disk."""
