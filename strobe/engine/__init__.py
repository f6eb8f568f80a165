"""The engine: trains, evaluates, saves and records."""
