"""Text files: their lines, and the delimiter and columns found from the first ones."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from strobe.errors import InputError
from strobe.graph.ingest.records import BLANKS, COMMENTS, WHITESPACE, Line, RowError, RowReader, is_undecodable, split

DELIMITERS = ("\t", ",", ";", "|")
BOM = "\ufeff"

_SNIFFED_LINES = 50


@dataclass(frozen=True)
class Layout:
    """How a text file is laid out.

    ``skip`` lines come before the first row: blank ones, ``comment_lines`` comments, and the header.
    """

    delimiter: str
    columns: list[str]
    skip: int
    comment_lines: int = 0


@dataclass(frozen=True)
class Span:
    """A stretch of a file: from which byte to which (None: to the end), after how many lines."""

    start: int = 0
    stop: int | None = None
    lines: int = 0


WHOLE = Span()


class NoRowsError(InputError):
    """A text file without a row has no layout."""


def sniff(path: Path, *, delimiter: str | None, header: bool, encoding: str, span: Span = WHOLE) -> Layout:
    """Find the comments before the first row, the delimiter and the columns of a file from its first lines.

    The delimiter is found from the first row and the 49 lines after it.
    """
    lines, skip, comment_lines = decoded_lines(path, encoding, span), 0, 0
    for first in lines:
        if first.text.startswith(COMMENTS):
            comment_lines += 1
        elif first.text.strip(BLANKS):
            break
        skip += 1
    else:
        raise NoRowsError(f"{path} has no row among its comments" if skip else f"{path} is empty: it has no row")
    body = [first, *islice(lines, _SNIFFED_LINES - 1)]
    found = (
        _guess_delimiter(path, [line.text for line in body if line.text.strip(BLANKS)])
        if delimiter is None
        else delimiter
    )
    where = f"{path}, line {skip + 1}"
    if header:
        return Layout(found, _names(first, found, where, encoding), skip + 1, comment_lines)
    width = _first_width(body, found, encoding)
    if width is None:
        raise (InputError if len(body) == _SNIFFED_LINES else NoRowsError)(f"{where}: {_problem(first, found)}")
    return Layout(found, [str(k) for k in range(width)], skip, comment_lines)


def _first_width(body: list[Line], delimiter: str, encoding: str) -> int | None:
    """The number of columns of the first row that can be split."""
    read = RowReader(body, delimiter, None, encoding)
    return next((len(row.fields) for row in read if row.fields is not None), None)


def _problem(line: Line, delimiter: str) -> str:
    try:
        split(line.text, delimiter)
    except RowError as error:
        return f"the first row {error}"
    return "the first row cannot be read"


def _names(line: Line, delimiter: str, where: str, encoding: str) -> list[str]:
    if is_undecodable(line.text):
        raise InputError(f"{where}: the header is not {encoding} text: say which encoding it is (such as latin-1)")
    try:
        fields = split(line.text, delimiter)
    except RowError as error:
        raise InputError(f"{where}: the header {error}") from None
    names = [name.strip() or f"column {k}" for k, name in enumerate(fields)]
    seen = set[str]()
    for name in names:
        if name in seen:
            raise InputError(f"{where}: the header names column {name!r} twice")
        seen.add(name)
    return names


def rows(path: Path, layout: Layout, encoding: str, span: Span = WHOLE) -> RowReader:
    """Every row with its line; rows that cannot be split or decoded come with a reason."""
    lines = islice(decoded_lines(path, encoding, span), layout.skip, None)
    return RowReader(lines, layout.delimiter, len(layout.columns), encoding, span.lines + layout.skip)


def decoded_lines(path: Path, encoding: str, span: Span = WHOLE) -> Iterator[Line]:
    """The lines of a file; bytes that are no text become lone surrogates."""
    with readable(path), open_bytes(path, span) as file:
        for number, raw in enumerate(file, span.lines):
            text = raw.decode(encoding, errors="surrogateescape")
            text = text.removeprefix(BOM) if number == 0 else text
            bare = text.removesuffix("\n").removesuffix("\r")
            yield Line(bare, text[len(bare) :])


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn what goes wrong while a file is read into errors that name it."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is truncated or damaged: it cannot be unpacked to its end ({error})") from error
    except IsADirectoryError as error:
        raise InputError(f"{path} is a directory, not a table") from error
    except FileNotFoundError as error:
        raise InputError(f"there is no file {path}") from error
    except PermissionError as error:
        raise InputError(f"{path} may not be read: {error}") from error


def open_bytes(path: Path, span: Span) -> BinaryIO:
    """The bytes of a span of a file, unpacked."""
    if path.suffix == ".gz":
        assert span == WHOLE, "what is packed is read from its beginning to its end"
        return io.BufferedReader(gzip.open(path, "rb"))
    return path.open("rb") if span == WHOLE else io.BufferedReader(_Stretch(path, span))


class _Stretch(io.RawIOBase):
    """The bytes of a span."""

    def __init__(self, path: Path, span: Span) -> None:
        self._file = path.open("rb", buffering=0)
        self._file.seek(span.start)
        self._left = sys.maxsize if span.stop is None else span.stop - span.start

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        read = self._file.readinto(memoryview(buffer)[: self._left]) or 0
        self._left -= read
        return read

    def close(self) -> None:
        self._file.close()
        super().close()


def _guess_delimiter(path: Path, lines: list[str]) -> str:
    """The delimiter that gives the first line the most columns, and at least half of the others as many.

    The first line is the first that can be split. Blanks delimit only lines that no other delimiter splits: fields of
    other files may hold them.
    """
    if path.name.removesuffix(".gz").endswith(".tsv"):
        return "\t"
    best, most = WHITESPACE, 1
    for delimiter in DELIMITERS:
        widths = [_width(line, delimiter) for line in lines]
        width = next((width for width in widths if width), 0)
        if width > most and 2 * widths.count(width) >= len(lines):
            best, most = delimiter, width
    return best


def _width(line: str, delimiter: str) -> int:
    try:
        return len(split(line, delimiter))
    except RowError:
        return 0
