"""A directory in which files arrive."""

from __future__ import annotations

import os
from pathlib import Path

from strobe.errors import InputError
from strobe.graph.follow.feed import Arrival, Feed, Position
from strobe.graph.ingest.tables import tables
from strobe.graph.ingest.text_table import TextOptions

_UNFINISHED = (".tmp", ".part")


class Directory(Feed):
    """Files that arrive in a directory, in order of their names: whatever ``ingest`` reads.

    A writer renames a file into place when it is whole: hidden names, and those that end in .tmp or .part, are not
    looked at. A file that was read may go away; its name must not come again.
    """

    def __init__(self, path: Path, text: TextOptions, columns: list[str | int]) -> None:
        super().__init__(path)
        self._text = text
        self._columns = columns

    def arrived(self, since: Position, *, ended: bool) -> Arrival | None:
        found, known = self._names(), set(since.get("files", ()))
        new = [self.path / name for name in found if name not in known]
        if not new:
            return None
        return Arrival(lambda con: tables(con, new, self._text, self._columns), {"files": found})

    def _names(self) -> list[str]:
        try:
            with os.scandir(self.path) as entries:
                names = [entry.name for entry in entries if entry.is_file()]
        except OSError as error:
            raise InputError(f"{self.path} cannot be read any more: {error}") from error
        return sorted(name for name in names if not name.startswith(".") and not name.endswith(_UNFINISHED))
