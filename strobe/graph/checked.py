"""Which graphs were checked before: remembered in the user's cache, so that opening them again takes no time.

A graph is known by its description and, for every file, its device, inode, size and times: another file, or a file that
was written to, is another graph. Nothing is kept in the graph's own directory, which may not be writable, or trusted.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from strobe.io.atomic import write_whole

_RULES = 1
"""Counted up when a check becomes stricter: graphs that were checked by older rules are checked again."""
_LINE = 33  # bytes: 32 hexadecimal digits and a line feed
_MOST = 1 << 16  # lines: 2 MiB
_SETTLED_S = 2.0  # the coarsest clock of a file system


class CheckedGraphs:
    """A file of digests, one a line, to which processes append. What is lost or cannot be written is checked again."""

    def __init__(self, path: Path, *, most: int = _MOST) -> None:
        self.path = path
        self._most = most
        self._known = set[str]()
        self._file: tuple[int, int] | None = None
        self._read_up_to = 0

    def __contains__(self, digest: str) -> bool:
        try:
            self._catch_up()
        except OSError:
            return False
        return digest in self._known

    def add(self, digest: str) -> None:
        """Remembers one graph, if the cache can be written to."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(f"{digest}\n".encode())  # one write of a few bytes: those of two processes do not mix
            if self.path.stat().st_size > self._most * _LINE:
                newest = self.path.read_bytes().splitlines()[-self._most // 2 :]
                write_whole(self.path, lambda file: file.writelines(line + b"\n" for line in newest))
        except OSError:
            return

    def _catch_up(self) -> None:
        """Reads what was appended since; all of it where the file is another one."""
        with self.path.open("rb") as file:
            status = os.fstat(file.fileno())
            if self._file != (status.st_dev, status.st_ino) or status.st_size < self._read_up_to:
                self._file, self._read_up_to = (status.st_dev, status.st_ino), 0
                self._known.clear()
            if status.st_size > self._read_up_to:
                file.seek(self._read_up_to)
                whole, _, _ = file.read().rpartition(b"\n")
                self._known.update(whole.decode("ascii", "replace").split("\n"))
                self._read_up_to += len(whole) + bool(whole)


@cache
def _at(folder: str) -> CheckedGraphs:
    return CheckedGraphs(Path(folder) / "checked-graphs")


def checked_graphs() -> CheckedGraphs:
    """Those of this user."""
    import platformdirs

    return _at(platformdirs.user_cache_dir("strobe"))


def digest_of(meta: Mapping[str, Any], files: Mapping[str, os.stat_result]) -> str:
    """What a graph is known by: 128 bits of a hash of its description and of the identity of its files."""
    known = [(name, s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for name, s in sorted(files.items())]
    text = json.dumps([_RULES, meta, known], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[: _LINE - 1]


def has_settled(files: Iterable[os.stat_result], now_s: float | None = None) -> bool:
    """Whether a file that is written to from now on will have another time than it has: not where the last write was
    less than a tick of the file system's clock ago."""
    newest = max((max(s.st_mtime, s.st_ctime) for s in files), default=0.0)
    return newest + _SETTLED_S < (time.time() if now_s is None else now_s)
