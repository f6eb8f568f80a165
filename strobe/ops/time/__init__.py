"""Time stages over sequences of cells: recurrent, attention and linear."""
