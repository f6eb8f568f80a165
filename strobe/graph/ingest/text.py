"""Text files: their lines, and the delimiter and columns detected from the first ones."""

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
from strobe.graph.ingest.records import (
    BLANKS,
    COMMENTS,
    WHITESPACE,
    Line,
    RowError,
    RowReader,
    is_undecodable,
    split_fields,
)

DELIMITERS = ("\t", ",", ";", "|")
BOM = "\ufeff"

_SNIFFED_LINES = 50


@dataclass(frozen=True)
class Layout:
    """Layout of a text file.

    ``skip`` lines precede the first row: blank ones, ``comment_lines`` comments, and the header.
    """

    delimiter: str
    columns: list[str]
    skip: int
    comment_lines: int = 0


@dataclass(frozen=True)
class Span:
    """Byte range of a file (``stop`` None: to the end), after ``lines`` lines."""

    start: int = 0
    stop: int | None = None
    lines: int = 0


WHOLE_FILE = Span()


class NoRowsError(InputError):
    """A text file without a row has no layout."""


def sniff(path: Path, *, delimiter: str | None, header: bool, encoding: str, span: Span = WHOLE_FILE) -> Layout:
    """Detect the comments before the first row, the delimiter and the columns of a file.

    The delimiter is detected from the first row and the 49 lines after it.
    """
    lines, skip, comment_lines = read_lines(path, encoding, span), 0, 0
    for first in lines:
        if first.text.startswith(COMMENTS):
            comment_lines += 1
        elif first.text.strip(BLANKS):
            break
        skip += 1
    else:
        raise NoRowsError(f"{path} has no row among its comments" if skip else f"{path} is empty: it has no row")
    body = [first, *islice(lines, _SNIFFED_LINES - 1)]
    layout = (
        _guess_delimiter(path, [line.text for line in body if line.text.strip(BLANKS)])
        if delimiter is None
        else delimiter
    )
    where = f"{path}, line {skip + 1}"
    if header:
        return Layout(layout, _header_names(first, layout, where, encoding), skip + 1, comment_lines)
    width = _first_width(body, layout, encoding)
    if width is None:
        raise (InputError if len(body) == _SNIFFED_LINES else NoRowsError)(f"{where}: {_problem(first, layout)}")
    return Layout(layout, [str(k) for k in range(width)], skip, comment_lines)


def _first_width(body: list[Line], delimiter: str, encoding: str) -> int | None:
    """Return the number of columns of the first row that can be split."""
    read = RowReader(body, delimiter, None, encoding)
    return next((len(row.fields) for row in read if row.fields is not None), None)


def _problem(line: Line, delimiter: str) -> str:
    try:
        split_fields(line.text, delimiter)
    except RowError as error:
        return f"the first row {error}"
    return "the first row cannot be read"


def _header_names(line: Line, delimiter: str, where: str, encoding: str) -> list[str]:
    if is_undecodable(line.text):
        raise InputError(f"{where}: the header is not {encoding} text: say which encoding it is (such as latin-1)")
    try:
        fields = split_fields(line.text, delimiter)
    except RowError as error:
        raise InputError(f"{where}: the header {error}") from None
    names = [name.strip() or f"column {k}" for k, name in enumerate(fields)]
    seen = set[str]()
    for name in names:
        if name in seen:
            raise InputError(f"{where}: the header names column {name!r} twice")
        seen.add(name)
    return names


def read_rows(path: Path, layout: Layout, encoding: str, span: Span = WHOLE_FILE) -> RowReader:
    """Return every row with its line; rows that cannot be split or decoded have a reason."""
    lines = islice(read_lines(path, encoding, span), layout.skip, None)
    return RowReader(lines, layout.delimiter, len(layout.columns), encoding, span.lines + layout.skip)


def read_lines(path: Path, encoding: str, span: Span = WHOLE_FILE) -> Iterator[Line]:
    """Yield the lines of a file; invalid bytes become lone surrogates."""
    with os_errors_as_input_errors(path), open_bytes(path, span) as file:
        for number, raw in enumerate(file, span.lines):
            text = raw.decode(encoding, errors="surrogateescape")
            text = text.removeprefix(BOM) if number == 0 else text
            bare = text.removesuffix("\n").removesuffix("\r")
            yield Line(bare, text[len(bare) :])


@contextmanager
def os_errors_as_input_errors(path: Path) -> Iterator[None]:
    """Turn errors of reading into errors that name the file."""
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
    """Open the unpacked bytes of a span of a file."""
    if path.suffix == ".gz":
        assert span == WHOLE_FILE, "what is packed is read from its beginning to its end"
        return io.BufferedReader(gzip.open(path, "rb"))
    return path.open("rb") if span == WHOLE_FILE else io.BufferedReader(_SpanReader(path, span))


class _SpanReader(io.RawIOBase):
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
    """Return the delimiter that gives the first line the most columns, and half of the others as many.

    The first line is the first that can be split. Blanks delimit only lines that no other delimiter splits, since
    fields of other files may contain them.
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
        return len(split_fields(line, delimiter))
    except RowError:
        return 0
