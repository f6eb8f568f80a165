"""Rejected rows: counted, the first ones shown in messages, all of them written to a file."""

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
from strobe.io.atomic import disk_is_full, write_atomic

_MAX_SHOWN = 10
_HEADER = ["source", "place", "column", "value", "reason"]


@dataclass(frozen=True)
class BadRow:
    """A rejected row: position, content, reason."""

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
    """Rejected rows of one run, and the number of its comment lines.

    Rows are collected in ``scratch``. ``publish`` replaces the file at ``path``, or extends it with ``extend``, when
    all sources have been read and there is a bad row; ``finish`` removes an outdated file when the run has succeeded. A
    run that fails earlier leaves the file unchanged.
    """

    path: Path | None = None
    scratch: Path = Path()
    extend: bool = False
    count: int = 0
    comment_lines: int = 0
    shown: list[BadRow] = field(default_factory=list)

    def add(self, rows: list[BadRow]) -> None:
        """Add rows."""
        if self.path is not None and rows:
            with self._scratch_file.open("a", newline="", encoding="utf-8", errors="surrogateescape") as file:
                csv.writer(file).writerows([row.source, row.place, row.column, row.value, row.reason] for row in rows)
        self.count += len(rows)
        self.shown += rows[: _MAX_SHOWN - len(self.shown)]

    def publish(self) -> None:
        """Write the rejected rows to the file, if there are any."""
        if self.path is None or not self.count:
            return
        header = (",".join(_HEADER) + "\r\n").encode()
        try:
            with self._scratch_file.open("rb") as rows:
                if self.path.exists() and (self.extend or not self.path.is_file()):  # a pipe, a terminal, /dev/null
                    with self.path.open("ab") as file:
                        _copy(b"" if self.path.is_file() and self.path.stat().st_size else header, rows, file)
                else:
                    write_atomic(self.path.resolve(), partial(_copy, header, rows))
        except OSError as error:
            if disk_is_full(error):
                raise
            raise OptionError(f"bad rows cannot be written to {self.path}: {error}") from error

    def finish(self) -> None:
        """Remove the file of an earlier run if this run succeeded without bad rows."""
        if self.path is not None and not self.count and not self.extend and self.path.is_file():
            with contextlib.suppress(OSError):
                self.path.unlink()

    def raise_if_any(self) -> None:
        """Raise ``BadRowsError`` if there is any bad row."""
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
    def _scratch_file(self) -> Path:
        return self.scratch / "rejected-rows.csv"


def _copy(header: bytes, rows: BinaryIO, file: BinaryIO) -> None:
    file.write(header)
    shutil.copyfileobj(rows, file)


def rejects_path(
    out: str | PathLike[str] | None, rejects: str | PathLike[str] | None, sources: Iterable[Any] = ()
) -> Path:
    """Return where rejected rows are written: ``rejects``, or a file next to the graph.

    Raises:
        OptionError: the file is a source, lies in the graph, or has other content than rejected rows.
    """
    if rejects is not None:
        path = check_path(rejects, "rejects")
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


def check_path(value: str | PathLike[str], option: str) -> Path:
    """Return a path that the file system accepts."""
    try:
        path = Path(value)
        path.resolve()
    except (TypeError, ValueError, OSError, RuntimeError) as error:
        raise OptionError(f"{option} must be a path, not {value!r}: {error}") from None
    return path


def _paths(sources: Iterable[Any]) -> Iterable[Path]:
    for source in sources:
        if isinstance(source, str | Path):
            yield Path(source)
        elif isinstance(source, list | tuple):
            yield from _paths(source)


def _holds_rejects(path: Path) -> bool:
    """Return whether a file is empty or begins like a file of rejected rows."""
    with path.open("rb") as file:
        begin = file.readline(1000).decode(errors="replace").rstrip("\r\n")
    return begin in ("", ",".join(_HEADER))
