"""Store delta: the last snapshots as differences in memory, older snapshots on disk."""
