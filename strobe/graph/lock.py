"""One writer at a time: a lock file beside what is written, which a killed writer cannot leave locked."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from strobe.errors import OptionError


class WriteLock:
    """Held from its making until ``release``; another holder anywhere is refused at once.

    The kernel lets go of it when its process ends, however it ends. The file is removed on release; on a
    file system without locks (some clusters have one) every writer is taken to be alone.
    """

    def __init__(self, target: Path) -> None:
        self._path = target.parent / f".{target.name}.lock"
        while True:
            self._file = self._path.open("a")
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._file.close()
                raise OptionError(
                    f"{target} is being written by another process: wait for it, or choose another place"
                ) from None
            except OSError:
                return
            with contextlib.suppress(FileNotFoundError):  # the holder before may have removed the file it locked
                if os.path.samestat(os.fstat(self._file.fileno()), self._path.stat()):
                    return
            self._file.close()

    def release(self) -> None:
        if not self._file.closed:
            self._path.unlink(missing_ok=True)
            self._file.close()
