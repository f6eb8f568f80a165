"""Lock files for single writers; the kernel releases the lock of a killed writer."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from strobe.errors import OptionError


class WriteLock:
    """Lock from construction to ``release``; a second holder, in any process, is refused at once.

    The lock file is removed on release. File systems without locks (some clusters) do not protect a writer.
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
            with contextlib.suppress(FileNotFoundError):  # the previous holder may have removed the file
                if os.path.samestat(os.fstat(self._file.fileno()), self._path.stat()):
                    return
            self._file.close()

    def release(self) -> None:
        if not self._file.closed:
            self._path.unlink(missing_ok=True)
            self._file.close()
