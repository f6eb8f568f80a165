"""JSON that is read back: every file, and every line of a record, carries a checksum of its content."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from strobe.errors import FormatError
from strobe.io.atomic import without_nan, write_json

SUM = "crc32"
MOST_BYTES = 256 << 20
"""The largest JSON file that is read: no file of ours comes near it."""


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as JSON will have them, with their checksum as the last one."""
    plain: dict[str, Any] = json.loads(json.dumps(without_nan(dict(values)), allow_nan=False))
    return {**plain, SUM: checksum_of(plain)}


def unsealed(values: Any) -> dict[str, Any] | None:
    """The values without their checksum; None where they are not what it was computed from."""
    if not isinstance(values, dict) or values.get(SUM) != checksum_of(values):
        return None
    return {name: value for name, value in values.items() if name != SUM}


def write_sealed(path: Path, values: Mapping[str, Any]) -> None:
    """Writes values and their checksum as JSON."""
    write_json(path, sealed(values))


def read_sealed(path: Path, advice: str) -> dict[str, Any]:
    """Read values that ``write_sealed`` has written.

    Args:
        path: a file that is there.
        advice: what to do about a file that was changed.

    Raises:
        FormatError: the file is damaged, or was changed after it was written.
    """
    found = unsealed(read_json(path))
    if found is None:
        raise changed(path, advice)
    return found


def changed(path: Path, advice: str) -> FormatError:
    """The error for a file whose checksum does not match."""
    return FormatError(f"{path} was changed after it was written, its checksum does not match: {advice}")


def read_json(path: Path) -> Any:
    """The value in a JSON file.

    Raises:
        FileNotFoundError: there is no such file.
        FormatError: it is not a file, too large, or not JSON.
    """
    try:
        if path.stat().st_size > MOST_BYTES or not path.is_file():
            raise FormatError(f"{path} is not a JSON file of at most {MOST_BYTES >> 20} MiB")
        return parsed(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(path) from None
    except ValueError as error:
        raise FormatError(f"{path} is damaged, it is not JSON: {error}") from error


def parsed(text: bytes) -> Any:
    """The value of a JSON text in UTF-8. ValueError for anything else, and for what JSON readers disagree about: names
    that stand twice in one object, numbers that are not finite."""
    try:
        return json.loads(text.decode(), parse_constant=_finite, parse_float=_finite, object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None


def _finite(number: str) -> float:
    if not isfinite(found := float(number)):
        raise ValueError(f"{number} is not a finite number")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} stands twice in one object")
    return found


def checksum_of(values: Mapping[str, Any]) -> str:
    """The checksum of values as JSON has them, but for one that stands among them."""
    rest = {name: value for name, value in values.items() if name != SUM}
    return f"{zlib.crc32(json.dumps(rest, sort_keys=True).encode()):08x}"
