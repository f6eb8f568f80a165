"""Files that are there whole or not at all, whenever the process or the machine stops."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

UNFINISHED = ".*.writing-*"
"""Files that a killed process leaves behind."""


def disk_is_full(error: BaseException | None) -> bool:
    """Whether what went wrong, or what that came from, is a disk that has no room left, or none for this user."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__ or error.__context__
    return False


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Writes beside the path, waits for the disk, then takes the place of what was there."""
    unfinished = path.with_name(f".{path.name}.writing-{os.getpid()}")
    try:
        with unfinished.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Waits until the names in a folder have reached the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Writes a value as JSON that people can read, too."""
    text = json.dumps(without_nan(value), indent=1, allow_nan=False) + "\n"
    write_whole(path, lambda file: file.write(text.encode()))


def without_nan(value: Any) -> Any:
    """The same nest with None for numbers that JSON does not know."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return value
