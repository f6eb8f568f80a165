"""Files that are there whole or not at all, whenever the process or the machine stops."""

from __future__ import annotations

import errno
import json
import math
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

UNFINISHED = ".*.writing-*"
"""Files that a killed process leaves behind."""

_UNFINISHED = re.compile(r"\.(.+)\.writing-(\d+)")


def disk_is_full(error: BaseException | None) -> bool:
    """Whether what went wrong, or what that came from, is a disk that has no room left, or none for this user."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__ or error.__context__
    return False


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Writes beside the path, waits for the disk, then takes the place of what was there.

    Unfinished files of the same path are removed first where the process that wrote them has ended.
    """
    for left in _left_over(path):
        left.unlink(missing_ok=True)
    unfinished = path.with_name(unfinished_name(path.name))
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


def unfinished_name(name: str) -> str:
    """The name of a file or folder while this process writes it."""
    return f".{name}.writing-{os.getpid()}"


def finished_name(name: str) -> str | None:
    """The name that an unfinished file or folder would have got; None for any other."""
    match = _UNFINISHED.fullmatch(name)
    return None if match is None else match[1]


def _left_over(path: Path) -> Iterator[Path]:
    """Unfinished files of a path whose process has ended."""
    with suppress(OSError):  # writing says what is wrong with the folder
        for entry in os.scandir(path.parent):
            match = _UNFINISHED.fullmatch(entry.name)
            if match is not None and match[1] == path.name and not _is_running(int(match[2])) and entry.is_file():
                yield Path(entry.path)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # of another user
        return True
    return True


def sync_folder(folder: Path) -> None:
    """Waits until the names in a folder have reached the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Writes a value as JSON that people can read, too; ``strobe.io.sealed`` adds a checksum for files read back."""
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
