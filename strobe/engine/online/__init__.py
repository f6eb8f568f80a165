"""Training while snapshots arrive."""
