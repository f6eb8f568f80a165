"""SVG charts of runs, partitions and simulations."""
