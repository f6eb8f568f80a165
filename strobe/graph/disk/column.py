"""Array on disk that grows by rows: a plain .npy file with a checksum of its data."""

from __future__ import annotations

import contextlib
import io
import math
import os
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from strobe.errors import InputError
from strobe.graph.arrays import Array

CHUNK_BYTES = 16 << 20
"""Bytes written or read at once."""


class Column:
    """Array that grows by rows in an .npy file, with a checksum of its data."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.crc32 = 0
        self.dtype: np.dtype[Any] | None = None
        self.shape: tuple[int, ...] = (0,)
        self._file: BinaryIO | None = None

    def append(self, rows: Array) -> None:
        rows = np.ascontiguousarray(rows)
        if self.dtype is None:
            self._start(rows.dtype, rows.shape[1:])
            assert self.dtype is not None
        if rows.shape[1:] != self.shape[1:]:
            raise InputError(f"{self.path.stem}: rows of shape {rows.shape[1:]} after rows of shape {self.shape[1:]}")
        # An empty array has no meaningful dtype: [] is float64.
        wider = np.promote_types(self.dtype, rows.dtype) if self.shape[0] else rows.dtype
        if wider != self.dtype and len(rows):
            self._rewrite(wider)
        self._write(rows)

    def flush(self) -> None:
        """Make the appended rows readable through ``map_npy``."""
        assert self._file is not None
        assert self.dtype is not None
        at = self._file.tell()
        self._file.seek(0)
        self._file.write(npy_header(self.dtype, self.shape))
        self._file.seek(at)
        self._file.flush()

    def read(self, start: int, stop: int) -> Array:
        """Return appended rows."""
        assert self._file is not None
        assert self.dtype is not None
        self._file.flush()
        begin, end = self._position(start), self._position(stop)
        with self.path.open("rb") as file:
            file.seek(begin)
            return np.frombuffer(file.read(end - begin), self.dtype).reshape(-1, *self.shape[1:])

    def rollback(self, rows: int, crc32: int) -> None:
        """Remove the rows after the first ``rows``, whose checksum is given."""
        if self._file is None or self.shape[0] == rows:
            return
        self.shape, self.crc32 = (rows, *self.shape[1:]), crc32
        self._file.seek(self._position(rows))
        self._file.truncate()

    def _position(self, row: int) -> int:
        """Return where a row begins in the file."""
        assert self.dtype is not None
        return len(npy_header(self.dtype, self.shape)) + row * self.dtype.itemsize * math.prod(self.shape[1:])

    def close(self) -> None:
        if self._file is not None and not self._file.closed:
            self.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def discard(self) -> None:
        """Close a file that is about to be removed."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # a full disk cannot take the buffered bytes
                self._file.close()

    def open_mapped(self) -> Array:
        """Map all flushed rows."""
        assert self.dtype is not None
        return map_npy(self.path, self.dtype, self.shape)

    def describe(self) -> dict[str, Any]:
        assert self.dtype is not None
        return {"dtype": self.dtype.str, "shape": list(self.shape), "crc32": f"{self.crc32:08x}"}

    def _start(self, dtype: np.dtype[Any], row_shape: tuple[int, ...]) -> None:
        self.crc32, self.dtype, self.shape = 0, dtype, (0, *row_shape)
        self._file = self.path.open("wb")
        self._file.write(npy_header(dtype, self.shape))

    def _write(self, rows: Array) -> None:
        assert self._file is not None
        for start in range(0, len(rows), step := max(1, CHUNK_BYTES // max(1, rows[:1].nbytes))):
            data = np.ascontiguousarray(rows[start : start + step], self.dtype).data
            self._file.write(data)
            self.crc32 = zlib.crc32(data, self.crc32)
        self.shape = (self.shape[0] + len(rows), *self.shape[1:])

    def _rewrite(self, dtype: np.dtype[Any]) -> None:
        """Rewrite the file with a wider dtype, for instance when a snapshot outgrows int32."""
        self.close()
        narrow = self.open_mapped()
        self.path.rename(old := self.path.with_suffix(".old"))
        self._start(dtype, narrow.shape[1:])
        self._write(narrow)
        old.unlink()


def map_npy(file: Path | BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Memory-map the array of an .npy file, read-only.

    Does not parse the header: numpy parses it as Python, which occasionally fails in two threads at once (CPython 3.11,
    gh-106905).
    """
    mapped = np.memmap(file, dtype, "r", len(npy_header(dtype, shape)), shape)
    return np.asarray(mapped)  # plain ndarray over the same pages: slices of np.memmap are slow to make


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the .npy header; its length is constant because numpy leaves room for the first axis to grow."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    )
    return buffer.getvalue()
