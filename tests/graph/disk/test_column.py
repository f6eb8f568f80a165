from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest

from strobe.errors import InputError
from strobe.graph.disk import column as column_module
from strobe.graph.disk.column import Column, npy_header


def test_a_column_widens_when_wider_rows_come(tmp_path: Path) -> None:
    column = Column(tmp_path / "wide.npy")
    wide = np.array([2**40, -1], np.int64)
    for rows in (np.arange(5, dtype=np.int32), np.empty(0, np.int64), np.arange(3, dtype=np.int32), wide):
        column.append(rows)
    column.append(np.array([7], np.int32))
    column.close()
    stored = np.load(tmp_path / "wide.npy")
    assert stored.dtype == np.int64
    assert stored.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 2**40, -1, 7]
    assert column.describe() == {
        "dtype": "<i8",
        "shape": [11],
        "crc32": f"{zlib.crc32(stored.tobytes()):08x}",
    }
    assert [path.name for path in tmp_path.iterdir()] == ["wide.npy"]


def test_a_column_of_rows_is_written_in_pieces_and_widens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_module, "CHUNK_BYTES", 64)
    rows = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    column = Column(tmp_path / "x.npy")
    column.append(rows[:60])
    column.append(rows[60:].astype(np.float64))
    column.flush()
    assert np.load(tmp_path / "x.npy").tolist() == rows.tolist()
    column.append(np.zeros((1, 3)))
    column.close()
    assert np.load(tmp_path / "x.npy").shape == (101, 3)
    assert column.crc32 == zlib.crc32(np.load(tmp_path / "x.npy").tobytes())


def test_a_column_refuses_rows_of_another_shape(tmp_path: Path) -> None:
    column = Column(tmp_path / "x.npy")
    column.append(np.ones((2, 3)))
    with pytest.raises(InputError, match=r"x: rows of shape \(2,\) after rows of shape \(3,\)"):
        column.append(np.ones((2, 2)))
    column.discard()


def test_a_header_has_one_length_from_no_rows_to_the_most_there_can_be() -> None:
    lengths = {len(npy_header(np.dtype(np.int64), (rows, 3))) for rows in (0, 10, 2**31, 2**62)}
    assert len(lengths) == 1
