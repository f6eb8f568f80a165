"""The colours of all pictures."""

PALETTE = ("#3b7dd8", "#e08214", "#2a9d8f", "#b5527c")
