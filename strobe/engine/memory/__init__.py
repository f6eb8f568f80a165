"""Where windows are while others are computed, and caches with a byte budget."""
