"""Checksummed JSON: every file, and every line of a record, has a checksum of its content."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from strobe.errors import FormatError
from strobe.io.atomic import nan_to_none, write_json

CHECKSUM_KEY = "crc32"
MAX_JSON_BYTES = 256 << 20
"""Largest JSON file that is read."""


def add_checksum(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as JSON stores them, followed by their checksum."""
    plain: dict[str, Any] = json.loads(json.dumps(nan_to_none(dict(values)), allow_nan=False))
    return {**plain, CHECKSUM_KEY: json_checksum(plain)}


def strip_checksum(values: Any) -> dict[str, Any] | None:
    """Return values without their checksum; None if it does not match."""
    if not isinstance(values, dict) or values.get(CHECKSUM_KEY) != json_checksum(values):
        return None
    return {name: value for name, value in values.items() if name != CHECKSUM_KEY}


def write_checksummed_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write values and their checksum as JSON."""
    write_json(path, add_checksum(values))


def read_checksummed_json(path: Path, advice: str) -> dict[str, Any]:
    """Read values that ``write_checksummed_json`` wrote.

    Args:
        path: an existing file.
        advice: what to do about a changed file.

    Raises:
        FormatError: the file is damaged, or was changed after it was written.
    """
    content = strip_checksum(read_json(path))
    if content is None:
        raise checksum_error(path, advice)
    return content


def checksum_error(path: Path, advice: str) -> FormatError:
    """Return the error for a file whose checksum does not match."""
    return FormatError(f"{path} was changed after it was written, its checksum does not match: {advice}")


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        FileNotFoundError: there is no such file.
        FormatError: it is not a file, too large, or not JSON.
    """
    try:
        if path.stat().st_size > MAX_JSON_BYTES or not path.is_file():
            raise FormatError(f"{path} is not a JSON file of at most {MAX_JSON_BYTES >> 20} MiB")
        return parse_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(path) from None
    except ValueError as error:
        raise FormatError(f"{path} is damaged, it is not JSON: {error}") from error


def parse_json(text: bytes) -> Any:
    """Parse UTF-8 JSON. Raise ValueError for anything else, and where readers disagree: repeated names, numbers that
    are not finite."""
    try:
        return json.loads(
            text.decode(),
            parse_constant=_parse_finite,
            parse_float=_parse_finite,
            object_pairs_hook=_reject_duplicate_keys,
        )
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None


def _parse_finite(number: str) -> float:
    if not isfinite(value := float(number)):
        raise ValueError(f"{number} is not a finite number")
    return value


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} stands twice in one object")
    return result


def json_checksum(values: Mapping[str, Any]) -> str:
    """Return the checksum of values as JSON stores them, without the checksum field."""
    rest = {name: value for name, value in values.items() if name != CHECKSUM_KEY}
    return f"{zlib.crc32(json.dumps(rest, sort_keys=True).encode()):08x}"
