"""Ways to run a structure stage: in chunks of cells, and as a collective over whole snapshots."""
