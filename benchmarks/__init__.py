"""One script per question. ``python -m benchmarks.NAME [--quick] [--json FILE]``."""

import os

os.environ.setdefault("STROBE_CACHE_LIMIT", "0")  # a run that is measured computes all it needs
