"""One script per question. ``python -m benchmarks.NAME [--quick] [--json FILE]``."""
