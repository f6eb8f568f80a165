"""Cache of computed results in the user's cache folder: one checksummed file of arrays per entry.

An entry is found by its kind and a key, a JSON value that says all that the result depends on; the versions of this
format and of Strobe belong to every key. A damaged entry, or one of another key, counts as absent. Entries used least
recently go when the limit is passed. Any number of processes may use a cache at a time.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import platformdirs
from safetensors import numpy as safetensors

import strobe
from strobe.errors import FormatError, OptionError
from strobe.format import file_size
from strobe.io.atomic import finished_name, is_abandoned
from strobe.io.tensor_file import read_tensor_file, read_values, write_tensor_file

Arrays = dict[str, npt.NDArray[Any]]

FOLDER_VARIABLE, LIMIT_VARIABLE = "STROBE_CACHE_DIR", "STROBE_CACHE_LIMIT"
DEFAULT_LIMIT = 4 << 30
MIN_SECONDS = 0.05
"""Results that took less time are not saved: reading one takes a millisecond, and its key a few more."""

READ_SECONDS_PER_BYTE = 1e-9
"""Upper bound of the time to read an entry and to compare its checksum."""

_FORMAT = 1
_MAX_ENTRIES = 1 << 14
_NAME = re.compile(r"[0-9a-f]{32}\.safetensors")
"""Names of entries: no other file is ever removed, but those that a killed process has left unfinished."""

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_writing = threading.Lock()


@dataclass(frozen=True)
class CacheEntry:
    """A file of the cache. ``subject`` is what the result belongs to, such as the name of a graph."""

    kind: str
    path: Path
    size: int
    last_used: float
    """Seconds since 1970."""

    @property
    def subject(self) -> str:
        try:
            return str(read_values(self.path)["subject"])
        except (OSError, FormatError, LookupError, TypeError):
            return ""


@dataclass(frozen=True, kw_only=True)
class Cache:
    """A folder of entries of at most ``limit_bytes``; 0 bytes: no cache, nothing is read or written.

    ``min_seconds``: results that took less time to compute are not saved.
    """

    folder: Path
    limit_bytes: int = DEFAULT_LIMIT
    min_seconds: float = MIN_SECONDS

    @classmethod
    def of_user(cls) -> Cache:
        """The user's cache: ``STROBE_CACHE_DIR`` or a folder of the user's cache folder, of ``STROBE_CACHE_LIMIT``."""
        chosen = os.environ.get(FOLDER_VARIABLE)
        folder = Path(chosen) if chosen else Path(platformdirs.user_cache_dir("strobe")) / "results"
        limit = os.environ.get(LIMIT_VARIABLE)
        return cls(folder=folder, limit_bytes=parse_size(limit) if limit else DEFAULT_LIMIT)

    @property
    def is_off(self) -> bool:
        return self.limit_bytes == 0

    def load(self, kind: str, key: Any) -> Arrays | None:
        """Load an entry, and note that it was used; None if it is absent, damaged or of another key."""
        if self.is_off:
            return None
        try:
            path = self._path(kind, key)
            data, values = read_tensor_file(path)
            if values["key"] != json.loads(_canonical(kind, key)):
                return None
            arrays = {name: array.copy() for name, array in safetensors.load(data).items()}
        except Exception:  # whatever is wrong with a key or a file of a cache, the result is computed again
            return None
        with suppress(OSError):  # of another user, or on a disk that is read-only
            os.utime(path)
        return arrays

    def save(
        self, kind: str, key: Any, arrays: Mapping[str, npt.NDArray[Any]], *, subject: str = "", seconds: float
    ) -> str | None:
        """Save an entry, unless reading it would take about as long as computing it did.

        Args:
            kind: of the result.
            key: all that the result depends on.
            arrays: the result.
            subject: what the result belongs to, for people.
            seconds: that the result took to compute.

        Returns:
            Why the entry could not be written; None if nothing is wrong.
        """
        size = sum(array.nbytes for array in arrays.values())
        pays = seconds >= max(self.min_seconds, READ_SECONDS_PER_BYTE * size)
        if self.is_off or size > self.limit_bytes or not pays:
            return None
        try:
            path, values = self._path(kind, key), {"key": json.loads(_canonical(kind, key)), "subject": subject}
        except ValueError:  # NaN equals nothing, so that no entry would be found
            return None
        dense = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        try:
            with _writing:  # an unfinished file has the name of its process
                path.parent.mkdir(parents=True, exist_ok=True)
                write_tensor_file(path, values, lambda metadata: safetensors.save(dense, metadata))
            self._evict()
        except OSError as error:
            return f"a result ({kind}) could not be cached in {self.folder}: {error.strerror or error}"
        return None

    def entries(self) -> list[CacheEntry]:
        """All entries, the least recently used first."""
        return sorted(self._files(), key=lambda entry: entry.last_used)

    def clear(self, kind: str | None = None) -> list[CacheEntry]:
        """Remove all entries, or those of a kind; returns them."""
        removed = [entry for entry in self._files() if kind is None or entry.kind == kind]
        for entry in removed:
            entry.path.unlink(missing_ok=True)
        return removed

    def _path(self, kind: str, key: Any) -> Path:
        return self.folder / kind / f"{hashlib.sha256(_canonical(kind, key).encode()).hexdigest()[:32]}.safetensors"

    def _files(self) -> Iterator[CacheEntry]:
        """All entries; removes what killed processes have left."""
        with suppress(FileNotFoundError, NotADirectoryError):
            for folder in [each for each in os.scandir(self.folder) if each.is_dir()]:
                for file in os.scandir(folder):
                    with suppress(OSError):  # another process may have removed it
                        if _NAME.fullmatch(file.name):
                            status = file.stat()
                            yield CacheEntry(folder.name, Path(file.path), status.st_size, status.st_mtime)
                        elif _NAME.fullmatch(finished_name(file.name) or "") and is_abandoned(file.name):
                            Path(file.path).unlink()

    def _evict(self) -> None:
        """Remove the entries used least recently until the rest is within the limit."""
        entries = self.entries()
        excess, surplus = sum(entry.size for entry in entries) - self.limit_bytes, len(entries) - _MAX_ENTRIES
        for entry in entries:
            if excess <= 0 and surplus <= 0:
                return
            entry.path.unlink(missing_ok=True)
            excess, surplus = excess - entry.size, surplus - 1


NO_CACHE = Cache(folder=Path(), limit_bytes=0)


def parse_size(text: str) -> int:
    """Parse a number of bytes: 500M, 2G, 1000000.

    Raises:
        OptionError: the text is no size.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise OptionError(f"{LIMIT_VARIABLE} is a size such as 500M or {file_size(DEFAULT_LIMIT)}, not {text!r}")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def encode_json(value: Any) -> Arrays:
    """A JSON value as an array of its text; numbers are as exact as they were, also NaN and infinite ones."""
    return {"json": np.frombuffer(json.dumps(value).encode(), np.uint8)}


def decode_json(arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
    """The value of ``encode_json``."""
    return json.loads(arrays["json"].tobytes())


def _canonical(kind: str, key: Any) -> str:
    """One text for equal keys."""
    versions = {"format": _FORMAT, "strobe": strobe.__version__}
    return json.dumps({"kind": kind, "versions": versions, "key": key}, sort_keys=True, allow_nan=False)
