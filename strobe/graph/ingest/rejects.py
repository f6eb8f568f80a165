"""Rows that are left out: counted, the first ones kept to show, all of them written to a file."""

from __future__ import annotations

import contextlib
import csv
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

from strobe.errors import BadRowsError, OptionError
from strobe.io.atomic import disk_is_full, write_whole

_SHOWN = 10
_HEADER = ["source", "place", "column", "value", "reason"]


@dataclass(frozen=True)
class BadRow:
    """A row that was refused: where it stands, what it holds, what is wrong."""

    source: str
    unit: str
    place: int
    column: str
    value: str
    reason: str

    def __str__(self) -> str:
        what = f"column {self.column!r}: {self.value!r} " if self.column else ""
        return f"{self.source}, {self.unit} {self.place}: {what}{self.reason}"


@dataclass
class Rejects:
    """Bad rows of one run, and the number of its comment lines.

    Rows are collected in ``scratch``. The file at ``path`` is replaced when all sources have been read and there is a
    bad row (``publish``), or extended with ``extend``; an earlier file that no longer holds true is removed when the
    run has succeeded (``finish``). A run that fails before leaves it as it is.
    """

    path: Path | None = None
    scratch: Path = Path()
    extend: bool = False
    count: int = 0
    comment_lines: int = 0
    shown: list[BadRow] = field(default_factory=list)

    def add(self, rows: list[BadRow]) -> None:
        """Take more rows."""
        if self.path is not None and rows:
            with self._collected.open("a", newline="", encoding="utf-8", errors="surrogateescape") as file:
                csv.writer(file).writerows([row.source, row.place, row.column, row.value, row.reason] for row in rows)
        self.count += len(rows)
        self.shown += rows[: _SHOWN - len(self.shown)]

    def publish(self) -> None:
        """Write the bad rows to the file, if there are any."""
        if self.path is None or not self.count:
            return
        header = (",".join(_HEADER) + "\r\n").encode()
        try:
            with self._collected.open("rb") as rows:
                if self.path.exists() and (self.extend or not self.path.is_file()):  # a pipe, a terminal, /dev/null
                    with self.path.open("ab") as file:
                        _copy(b"" if self.path.is_file() and self.path.stat().st_size else header, rows, file)
                else:
                    write_whole(self.path.resolve(), partial(_copy, header, rows))
        except OSError as error:
            if disk_is_full(error):
                raise
            raise OptionError(f"bad rows cannot be written to {self.path}: {error}") from error

    def finish(self) -> None:
        """Remove the file of an earlier run where this one, which has succeeded, had no bad row."""
        if self.path is not None and not self.count and not self.extend and self.path.is_file():
            with contextlib.suppress(OSError):
                self.path.unlink()

    def refuse(self) -> None:
        """Raise if there is any bad row."""
        if self.count:
            listed = "\n".join(f"  {row}" for row in self.shown)
            first = self.shown[0]
            if first.unit == "line" and first.place == 1:
                listed += "\n  Line 1 may be a header: say so with --header (TextOptions(header=True))."
            more = f"\n  … and {self.count - len(self.shown):,} more" if self.count > len(self.shown) else ""
            raise BadRowsError(
                f"{self.count:,} bad {'row' if self.count == 1 else 'rows'}; nothing was written:\n{listed}{more}\n"
                "Mend the table, or leave them out with --skip-bad-rows (skip_bad_rows=True)."
            )

    @property
    def _collected(self) -> Path:
        return self.scratch / "rejected-rows.csv"


def _copy(header: bytes, rows: BinaryIO, file: BinaryIO) -> None:
    file.write(header)
    shutil.copyfileobj(rows, file)


def rejects_path(
    out: str | PathLike[str] | None, rejects: str | PathLike[str] | None, sources: Iterable[Any] = ()
) -> Path:
    """Where rows that are left out are written: ``rejects``, or a file beside the graph.

    Raises:
        OptionError: the file is one of the sources, lies in the graph, or holds anything but rejected rows.
    """
    if rejects is not None:
        path = usable_path(rejects, "rejects")
    elif out is not None:
        graph = Path(out) if Path(out).name else Path(out).resolve()
        path = graph.parent / f"{graph.name}.rejects.csv"
    else:
        raise OptionError("skip_bad_rows needs a file for the rejected rows: give rejects=…")
    for source in _paths(sources):
        if path.resolve() == source.resolve() or (path.exists() and source.exists() and path.samefile(source)):
            raise OptionError(f"rejected rows cannot go to {path}: that is an input. Choose another file (--rejects).")
    if out is not None and path.resolve().is_relative_to(Path(out).resolve()):
        raise OptionError(f"rejected rows cannot go to {path}: the graph is written there. Choose another file.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise OptionError(f"rejected rows cannot go to {path}: that is a directory. Choose a file.")
        if path.is_file() and not _holds_rejects(path):
            raise OptionError(
                f"rejected rows cannot go to {path}: that file holds something else, which would be lost. "
                "Choose another file, or remove it first."
            )
    except OSError as error:
        raise OptionError(f"rejected rows cannot be written to {path}: {error}") from error
    return path


def usable_path(given: str | PathLike[str], option: str) -> Path:
    """A path that the file system can be asked about."""
    try:
        path = Path(given)
        path.resolve()
    except (TypeError, ValueError, OSError, RuntimeError) as error:
        raise OptionError(f"{option} must be a path, not {given!r}: {error}") from None
    return path


def _paths(sources: Iterable[Any]) -> Iterable[Path]:
    for source in sources:
        if isinstance(source, str | Path):
            yield Path(source)
        elif isinstance(source, list | tuple):
            yield from _paths(source)


def _holds_rejects(path: Path) -> bool:
    """Whether a file is empty or begins as a file of rejected rows does."""
    with path.open("rb") as file:
        begin = file.readline(1000).decode(errors="replace").rstrip("\r\n")
    return begin in ("", ",".join(_HEADER))
