from __future__ import annotations

import resource
from pathlib import Path

import pytest

from strobe.errors import StrobeError
from strobe.graph.ingest import Every, ingest


def test_a_process_that_may_map_little_memory_is_told_so(tmp_path: Path) -> None:
    table = tmp_path / "events.csv"
    table.write_text("a,b,1\n")
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), before[1]))
    try:
        with pytest.raises(StrobeError, match="ulimit -v"):
            ingest(table, src=0, dst=1, time=2, clock=Every(1))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
