"""The colours of all pictures."""

PALETTE = ("#3b7dd8", "#e08214", "#2a9d8f", "#b5527c")

MANY = (*PALETTE, "#8a6fd1", "#a3a329", "#d9534a", "#5aa9c9", "#7a8a99", "#5d9c3a", "#c98fb8", "#8c6239")
"""Where there is more to tell apart."""
