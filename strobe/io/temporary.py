"""Temporary folders; those of killed processes are removed by the next process."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Self


class TemporaryFolder:
    """Locked folder for temporary files, removed on exit.

    The kernel releases the lock when the process ends. Making a folder for the same purpose in the same place removes
    those that no process has locked.
    """

    def __init__(self, purpose: str, parent: str | os.PathLike[str] | None = None) -> None:
        parent = Path(tempfile.gettempdir() if parent is None else parent)
        prefix = f"strobe-{purpose}-"
        for other in parent.glob(f"{prefix}*"):
            _remove_if_abandoned(other)
        while not self._make(prefix, parent):
            pass

    def _make(self, prefix: str, parent: Path) -> bool:
        """Make and lock a folder; return False if another process removed it in between."""
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        self._handle: int | None = None
        try:
            self._handle = _lock(self.path)
        except (FileNotFoundError, BlockingIOError):  # a process that has locked it is about to remove it
            return False
        except OSError:  # a file system without locks: nothing is ever removed there
            return True
        return self.path.exists()

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def _lock(folder: Path) -> int:
    """Return a locked handle of a folder. Raise OSError if it is locked, or if there are no locks."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def _remove_if_abandoned(folder: Path) -> None:
    try:
        handle = _lock(folder)
    except OSError:  # in use, of another user, or gone
        return
    shutil.rmtree(folder, ignore_errors=True)
    os.close(handle)
