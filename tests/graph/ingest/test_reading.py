from __future__ import annotations

import resource
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from strobe.errors import BadRowsError, StrobeError
from strobe.graph.ingest import Calendar, Every, ingest
from strobe.graph.ingest.columns import guess_time


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


def test_a_value_outside_the_statistics_of_its_parquet_file_is_found(tmp_path: Path) -> None:
    path, time = tmp_path / "events.parquet", 1_600_000_777
    table = pa.table({"src": [1, 2, 3], "dst": [2, 3, 1], "time": [1_600_000_000, time, 1_600_000_999]})
    pyarrow.parquet.write_table(table, path, compression="none", use_dictionary=False)
    data, value = path.read_bytes(), time.to_bytes(8, "little")
    assert data.count(value) == 1  # neither the least nor the largest, so statistics do not hold it
    path.write_bytes(data.replace(value, (1 << 58).to_bytes(8, "little")))
    with pytest.raises(BadRowsError, match="row 2"):
        ingest(path, src="src", dst="dst", time="time", time_unit="s", clock=Calendar("day"))


def test_control_characters_make_no_number_of_a_time() -> None:
    assert guess_time(["5\x1f", "\x1d8"]) == "number"
