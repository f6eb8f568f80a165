"""Text tables: finding delimiter and header, and the careful reader that knows every row's line."""

from __future__ import annotations

import csv
import gzip
import io
import re
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from strobe.errors import InputError

DELIMITERS = ("\t", ",", ";", "|")
COMMENTS = ("#", "%")
WHITESPACE = " "

_SNIFFED_LINES = 50
_BLOCK_BYTES = 16 << 20


class Row(NamedTuple):
    """A row of a text table; ``fields`` is None where it could not be read, for the stated reason."""

    line: int
    fields: list[str] | None
    reason: str = ""


class Block(NamedTuple):
    """Some whole lines of a text file, good until the next block is asked for."""

    data: memoryview
    num_lines: int
    num_quotes: int
    may_hold_hex: bool


@dataclass(frozen=True)
class Layout:
    """How a text file is laid out. ``skip`` lines (comments and the header) come before the first row."""

    delimiter: str
    columns: list[str]
    skip: int


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
    """Finds comments, delimiter and columns of a file from its first lines."""
    raw = list(islice(_raw_lines(path, span), _SNIFFED_LINES))
    lines = [_decode(line, encoding).rstrip("\r\n").removeprefix("\ufeff") for line in raw]
    skip = next((k for k, line in enumerate(lines) if line.strip() and not line.startswith(COMMENTS)), None)
    if skip is None:
        raise NoRowsError(f"{path} is empty: it has no row" if not raw else f"{path} has no row among its comments")
    body = [line for line in lines[skip:] if line.strip()]
    found = _guess_delimiter(path, body) if delimiter is None else delimiter
    first = split(body[0], found)
    if header:
        names = [name.strip() or f"column {k}" for k, name in enumerate(first)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InputError(f"{path}, line {skip + 1}: the header names column {twice[0]!r} twice")
        return Layout(found, names, skip + 1)
    return Layout(found, [str(k) for k in range(len(first))], skip)


def rows(path: Path, layout: Layout, encoding: str, span: Span = WHOLE) -> Iterator[Row]:
    """Every row with its line; what cannot be split or decoded comes with a reason, and reading goes on."""
    lines = _NumberedLines(path, encoding, span)
    for _ in range(layout.skip):
        next(lines, None)
    parsed = _split_all(lines, layout.delimiter)
    while True:
        start = lines.number + 1
        try:
            fields = next(parsed)
        except StopIteration:
            return
        except csv.Error as error:
            yield Row(start, None, f"cannot be read as a row: {error}")
            continue
        if not fields or (len(fields) == 1 and not fields[0].strip()):
            continue
        if _is_comment(fields[0], len(fields), layout):
            continue
        if any(_is_undecodable(field) for field in fields):
            yield Row(start, None, f"is not {encoding} text")
        elif len(fields) != len(layout.columns):
            yield Row(start, None, f"has {len(fields)} columns, not {len(layout.columns)}")
        else:
            yield Row(start, fields)


def blocks(path: Path, layout: Layout, span: Span = WHOLE) -> Iterator[Block]:
    """The file after its header in blocks of whole lines."""
    with _readable(path), _open(path, span) as file:
        for _ in range(layout.skip):
            file.readline()
        buffer, held = bytearray(_BLOCK_BYTES), 0
        while True:
            if held == len(buffer):  # a line longer than the buffer
                buffer = buffer + bytes(len(buffer))
            read = file.readinto(memoryview(buffer)[held:])  # type: ignore[attr-defined]
            held += read
            end = held if not read else buffer.rfind(b"\n", 0, held) + 1
            if end:
                data = memoryview(buffer)[:end]
                num_lines = _count(data, "\n") + (buffer[end - 1] != ord("\n"))
                num_quotes = _count(data, '"') if buffer.find(b'"', 0, end) >= 0 else 0
                hexadecimal = buffer.find(b"x", 0, end) >= 0 or buffer.find(b"X", 0, end) >= 0
                yield Block(data, num_lines, num_quotes, hexadecimal)
                buffer[: held - end] = buffer[end:held]
                held -= end
            if not read:
                return


def _count(data: memoryview, character: str) -> int:
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == ord(character)))


def tidied(block: memoryview, layout: Layout) -> bytes:
    """A block without blank lines, comments, carriage returns and needless blanks, as ``rows`` sees it."""
    lines = []
    for line in bytes(block).splitlines():
        kept = b" ".join(line.split()) if layout.delimiter == WHITESPACE else line
        fields = kept.split(layout.delimiter.encode())
        if kept.strip() and not _is_comment(fields[0].decode(errors="replace"), len(fields), layout):
            lines.append(kept + b"\n")
    return b"".join(lines)


def _is_comment(first: str, width: int, layout: Layout) -> bool:
    """Whether a row that begins with this field is none: #tag,b,1 is a row of three columns, "# note" is not."""
    return first.startswith(COMMENTS) and (width != len(layout.columns) or not first[1:2].strip())


def split(line: str, delimiter: str) -> list[str]:
    """One line as fields; a space as delimiter means any run of blanks."""
    return next(_split_all([line], delimiter), [])


def _split_all(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    if delimiter == WHITESPACE:
        return (line.split() for line in lines)
    return csv.reader(lines, delimiter=delimiter, strict=True)


class _NumberedLines:
    """Decoded lines of a file, and the number of the last one read."""

    def __init__(self, path: Path, encoding: str, span: Span) -> None:
        self._lines = _raw_lines(path, span)
        self._encoding = encoding
        self.number = span.lines

    def __iter__(self) -> _NumberedLines:
        return self

    def __next__(self) -> str:
        raw = next(self._lines)
        self.number += 1
        line = _decode(raw, self._encoding)
        return line.removeprefix("\ufeff") if self.number == 1 else line


def _raw_lines(path: Path, span: Span) -> Iterator[bytes]:
    with _readable(path), _open(path, span) as file:
        yield from file


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turns what goes wrong while a file is read into errors that name it."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is truncated or damaged: it cannot be unpacked to its end ({error})") from error
    except IsADirectoryError as error:
        raise InputError(f"{path} is a directory, not a table") from error
    except FileNotFoundError as error:
        raise InputError(f"there is no file {path}") from error


def _open(path: Path, span: Span) -> BinaryIO:
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


def _decode(raw: bytes, encoding: str) -> str:
    return raw.decode(encoding, errors="surrogateescape")


def _is_undecodable(text: str) -> bool:
    return re.search("[\udc80-\udcff]", text) is not None


def _guess_delimiter(path: Path, lines: list[str]) -> str:
    """The delimiter that gives the first line the most columns, and at least half of the others as many.

    Blanks delimit only what nothing else does: fields of other files may hold them.
    """
    if path.name.removesuffix(".gz").endswith(".tsv"):
        return "\t"
    best, most = WHITESPACE, 1
    for delimiter in DELIMITERS:
        width = _width(lines[0], delimiter)
        alike = sum(_width(line, delimiter) == width for line in lines)
        if width > most and 2 * alike >= len(lines):
            best, most = delimiter, width
    return best


def _width(line: str, delimiter: str) -> int:
    try:
        return len(split(line, delimiter))
    except csv.Error:
        return 0
