from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from strobe.errors import BadRowsError
from strobe.graph.ingest import Calendar, ingest
from strobe.graph.ingest.columns import guess_ids, guess_time


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
    assert guess_time(["5\x0b", "8\x0b", "2020-09-13"]) == "iso"


def test_control_characters_make_no_integer_of_an_id() -> None:
    assert guess_ids([" 5\t", "8"]) == "integer"
    assert guess_ids(["5\x0b", "8\x0b", "7"]) == "string"
