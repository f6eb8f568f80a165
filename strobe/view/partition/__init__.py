"""The part of a window that one rank owns: its cells, its halo and its time stages."""
