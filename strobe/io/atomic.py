"""Atomic writes: a file is complete or absent, whenever the process or the machine stops."""

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

UNFINISHED_GLOB = ".*.writing-*"
"""Pattern of the files that a killed process leaves behind."""

_UNFINISHED_NAME = re.compile(r"\.(.+)\.writing-(\d+)")


def disk_is_full(error: BaseException | None) -> bool:
    """Return whether an error, or its cause, is a full disk or an exceeded quota."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__ or error.__context__
    return False


def write_atomic(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write to a temporary sibling, sync it, then rename it to the path.

    Unfinished files of the same path are removed first if their process has ended.
    """
    for left in _stale_unfinished_files(path):
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
    """Return the name of a file or folder while this process writes it."""
    return f".{name}.writing-{os.getpid()}"


def finished_name(name: str) -> str | None:
    """Return the final name of an unfinished file or folder; None for other names."""
    match = _UNFINISHED_NAME.fullmatch(name)
    return None if match is None else match[1]


def is_abandoned(name: str) -> bool:
    """Return whether a name is that of an unfinished file whose process has ended."""
    match = _UNFINISHED_NAME.fullmatch(name)
    return match is not None and not _is_running(int(match[2]))


def _stale_unfinished_files(path: Path) -> Iterator[Path]:
    """Yield unfinished files of a path whose process has ended."""
    with suppress(OSError):  # writing reports what is wrong with the folder
        for entry in os.scandir(path.parent):
            if finished_name(entry.name) == path.name and is_abandoned(entry.name) and entry.is_file():
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
    """Sync a folder: wait until its entries have reached the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write indented JSON; ``strobe.io.checksum`` adds a checksum for files that are read back."""
    text = json.dumps(nan_to_none(value), indent=1, allow_nan=False) + "\n"
    write_atomic(path, lambda file: file.write(text.encode()))


def nan_to_none(value: Any) -> Any:
    """Replace numbers that JSON does not know by None, in nested values."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): nan_to_none(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [nan_to_none(item) for item in value]
    return value
