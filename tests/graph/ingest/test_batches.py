"""Arrow batches from arrays, tables and cursors, and prefetching of batches."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from strobe.errors import InputError
from strobe.graph.ingest import Calendar, Every, ingest
from strobe.graph.ingest.batches import prefetch


def read(times: Any, source: str, folder: Path, **options: Any) -> Any:
    table: Any = {"s": np.array([1, 2]), "d": np.array([2, 3]), "t": times}
    if source == "npz":
        np.savez(folder / "e.npz", **table)
        table = folder / "e.npz"
    return ingest(table, src="s", dst="d", time="t", **({"clock": Every(1)} | options))


@pytest.mark.parametrize("source", ["npz", "mapping"])
@pytest.mark.parametrize("dtype", [">i8", ">i2", "f2", ">f2", ">f4", "g", "u8", "?"])
def test_numbers_of_every_type_are_read(dtype: str, source: str, tmp_path: Path) -> None:
    assert read(np.array([0, 1], dtype), source, tmp_path).times == (0, 1)


@pytest.mark.parametrize("source", ["npz", "mapping"])
@pytest.mark.parametrize("unit", ["Y", "M", "W", "D", "h", "s", "ms", "ns", "ps", "fs", "as", "25s"])
def test_dates_of_every_unit_are_read(unit: str, source: str, tmp_path: Path) -> None:
    graph = read(np.array([0, 1], f"M8[{unit}]"), source, tmp_path, clock=Calendar("year"))
    assert graph.times[0] == "1970"
    assert graph.info["rows"] == 2


@pytest.mark.parametrize("source", ["npz", "mapping"])
@pytest.mark.parametrize(("first", "dtype"), [(2**62, "M8[Y]"), (10**6, "M8[Y]"), ("NaT", "M8")])
def test_dates_that_no_calendar_holds_are_refused(first: Any, dtype: str, source: str, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        read(np.array([first, "NaT"], dtype), source, tmp_path)


def test_an_arrow_column_of_half_floats_is_read(tmp_path: Path) -> None:
    table = pa.table({"s": [1, 2], "d": [2, 3], "t": pa.array(np.array([0, 1], np.float16))})
    assert ingest(table, src="s", dst="d", time="t", clock=Every(1)).times == (0, 1)


@pytest.mark.parametrize("column", [pa.array([[1], [2]]), pa.array([{"a": 1}, None]), pa.array([b"1", b"2"])])
def test_a_column_that_is_no_time_is_refused(column: pa.Array) -> None:
    with pytest.raises(InputError):
        ingest(pa.table({"s": [1, 2], "d": [2, 3], "t": column}), src="s", dst="d", time="t", clock=Every(1))


def test_items_come_in_order() -> None:
    assert list(prefetch(iter(range(100)))) == list(range(100))
    assert list(prefetch(iter([]))) == []


def test_the_next_item_is_made_while_the_current_one_is_used() -> None:
    made = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        made.set()
        yield 2

    for item in prefetch(items()):
        assert item == 2 or made.wait(timeout=10)


def test_exceptions_in_the_thread_are_raised_in_the_caller() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        list(prefetch(items()))


def test_an_early_end_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())
    items = prefetch(iter(range(100)))
    assert next(items) == 0
    items.close()  # type: ignore[attr-defined]
    assert set(threading.enumerate()) <= before
