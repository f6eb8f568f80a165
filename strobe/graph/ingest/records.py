"""The rules of text tables: which lines are rows, which are comments, and where a quoted field ends.

Every reader of text follows these rules (docs/data.md, "Text files"):

- A line ends with LF or CRLF. A line of nothing but spaces and tabs is skipped.
- A line that begins with # or % is a comment if it does not have the table's number of columns.
- A field that begins with a quote ends with the next quote that is not doubled. It may hold line ends, if the row that
  it makes ends within ``MAX_LINES`` lines and has the table's number of columns. Otherwise only the line in which the
  row begins is bad: reading resumes at the next line.
- A space as delimiter stands for any run of spaces and tabs; quotes then mean nothing.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

COMMENTS = ("#", "%")
WHITESPACE = " "
BLANKS = " \t"
MAX_LINES = 1000
"""Most lines of one row."""

_REST_OF_QUOTED = re.compile(r'((?:[^"]++|"")*+)"')
_BLANK_RUN = re.compile(r"[ \t]+")
_UNDECODABLE = re.compile("[\udc80-\udcff]")


class Line(NamedTuple):
    """A decoded line and its line end: LF, CRLF, or nothing at the end of the file."""

    text: str
    end: str


class Row(NamedTuple):
    """A row of a text table; ``fields`` is None if it could not be read, for the stated reason."""

    line: int
    fields: list[str] | None
    reason: str = ""


class RowError(Exception):
    """A line that cannot be split into fields, with the reason."""


class OpenQuoteError(RowError):
    """The line ends within a quoted field."""


class _Record:
    """A row that is read line by line: its complete fields, and the text of a quoted field that is still open."""

    def __init__(self, delimiter: str) -> None:
        self.fields: list[str] = []
        self._delimiter = delimiter
        self._open: list[str] | None = None

    def add(self, line: Line) -> bool:
        """Take the next line; return whether the row is complete.

        Raises:
            RowError: the row cannot be completed.
        """
        text, at = line.text, 0
        while True:
            if self._open is None and text.startswith('"', at):
                self._open, at = [], at + 1
            if self._open is not None:
                match = _REST_OF_QUOTED.match(text, at)
                if match is None:
                    self._open.append(text[at:] + line.end)
                    return False
                self.fields.append("".join([*self._open, match[1]]).replace('""', '"'))
                self._open, stop = None, match.end()
            else:
                end = text.find(self._delimiter, at)
                stop = len(text) if end < 0 else end
                self.fields.append(_check_no_carriage_return(text[at:stop]))
            if stop == len(text):
                return True
            if text[stop] != self._delimiter:
                raise RowError("has text after the closing quote of a field")
            at = stop + 1


def split_fields(text: str, delimiter: str) -> list[str]:
    """Split one line into fields; raise ``RowError`` if that is impossible."""
    if delimiter == WHITESPACE:
        return _BLANK_RUN.sub(WHITESPACE, _check_no_carriage_return(text).strip(BLANKS)).split(WHITESPACE)
    if '"' not in text:
        return _check_no_carriage_return(text).split(delimiter)
    record = _Record(delimiter)
    if not record.add(Line(text, "")):
        raise OpenQuoteError("has a quote that is not closed")
    return record.fields


def is_undecodable(text: str) -> bool:
    """Return whether the text has bytes that are invalid in the file's encoding."""
    return not text.isascii() and _UNDECODABLE.search(text) is not None


class RowReader:
    """Iterate over the rows of a text table, good and bad ones.

    ``width`` is the number of columns (None: any). ``comment_lines`` counts the comments so far. ``undecided`` is the
    line of the first row whose quoted field was still open when the lines ended: more lines may close it.
    """

    def __init__(
        self, lines: Iterable[Line], delimiter: str, width: int | None, encoding: str, number: int = 0
    ) -> None:
        self._lines = iter(lines)
        self._ahead: deque[Line] = deque()
        self._delimiter = delimiter
        self._width = width
        self._encoding = encoding
        self._number = number
        self.comment_lines = 0
        self.undecided: int | None = None

    def __iter__(self) -> Iterator[Row]:
        for line in iter(self._next_line, None):
            self._number += 1
            if not line.text.strip(BLANKS):
                continue
            row = self._row(line)
            if row is None:
                self.comment_lines += 1
            else:
                yield row

    def _next_line(self) -> Line | None:
        return self._ahead.popleft() if self._ahead else next(self._lines, None)

    def _row(self, line: Line) -> Row | None:
        """Return the row that begins in this line, and may end in a later one; None for a comment."""
        number, text, reason = self._number, line.text, ""
        fields: list[str] | None = None
        try:
            fields = split_fields(text, self._delimiter)
        except OpenQuoteError as error:
            fields, text = self._read_span(line) or (None, text)
            reason = str(error)
        except RowError as error:
            reason = str(error)
        if fields is not None and self._width in (None, len(fields)):
            undecodable = is_undecodable(text)
            return Row(number, None, f"is not {self._encoding} text") if undecodable else Row(number, fields)
        if text.startswith(COMMENTS):
            return None
        return Row(number, None, reason if fields is None else f"has {len(fields)} columns, not {self._width}")

    def _read_span(self, first: Line) -> tuple[list[str], str] | None:
        """Return fields and text of a row that begins in this line and ends in a later one; None if there is none."""
        record, lines = _Record(self._delimiter), [first]
        record.add(first)
        try:
            while len(lines) < MAX_LINES and (self._width is None or len(record.fields) < self._width):
                if len(lines) > len(self._ahead):
                    following = next(self._lines, None)
                    if following is None:
                        self.undecided = self.undecided or self._number
                        return None
                    self._ahead.append(following)
                lines.append(self._ahead[len(lines) - 1])
                if record.add(lines[-1]):
                    return self._accept_span(record, lines)
        except RowError:
            pass
        return None

    def _accept_span(self, record: _Record, lines: list[Line]) -> tuple[list[str], str] | None:
        if self._width not in (None, len(record.fields)):
            return None
        for _ in lines[1:]:
            self._ahead.popleft()
        self._number += len(lines) - 1
        return record.fields, "".join(line.text for line in lines)


def _check_no_carriage_return(text: str) -> str:
    if "\r" in text:
        raise RowError("holds a carriage return: lines end with LF or CRLF")
    return text
