"""A text file that grows."""

from __future__ import annotations

import zlib
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from strobe.errors import InputError
from strobe.graph.column import CHUNK_BYTES
from strobe.graph.follow.feed import Arrival, Feed, Position
from strobe.graph.ingest.text import Layout, NoRowsError, Span, open_bytes, rows
from strobe.graph.ingest.text_table import TextOptions, text_table

_REMEMBERED_BYTES = 1024


class _Lines(NamedTuple):
    """Where whole lines end, and how many there are."""

    stop: int
    number: int


class TextFile(Feed):
    """A text file to which lines are appended; a last line without its end is left until it has one.

    Its layout is found when it has a first row. A row whose quoted field is still open, and the lines after it, are
    left until the field is closed or can no longer be (``records.MAX_LINES``).
    """

    def __init__(self, path: Path, text: TextOptions, columns: list[str | int]) -> None:
        super().__init__(path)
        self._text = text
        self._columns = columns

    def arrived(self, since: Position, *, ended: bool) -> Arrival | None:
        start, lines = since.get("offset", 0), since.get("lines", 0)
        self._refuse_other_file(since)
        end = self._whole_lines(start, ended)
        if end.number == 0:
            return None
        layout = self._layout(since, end.stop)
        if layout is None:
            return None
        here = layout if start == 0 else Layout(layout.delimiter, layout.columns, 0)
        if not ended:
            end = self._decided(here, Span(start, end.stop, lines), end)
        if end.number == 0:
            return None
        span = Span(start, end.stop, lines)
        position = {
            "offset": end.stop,
            "lines": lines + end.number,
            "before": self._checksum(end.stop),
            "layout": asdict(layout),
        }
        return Arrival(lambda con: [text_table(self.path, self._text, here, span)], position)

    def _whole_lines(self, start: int, ended: bool) -> _Lines:
        stop, count, at = start, 0, start
        with self._file() as file:
            file.seek(start)
            while chunk := file.read(CHUNK_BYTES):
                count += chunk.count(b"\n")
                stop = at + chunk.rfind(b"\n") + 1 if b"\n" in chunk else stop
                at += len(chunk)
        return _Lines(at, count + 1) if ended and at > stop else _Lines(stop, count)

    def _decided(self, layout: Layout, span: Span, end: _Lines) -> _Lines:
        """The lines before a row whose quoted field is still open at their end; all of them where there is none."""
        assert self._text.codec is not None
        with open_bytes(self.path, span) as file:
            if not any(b'"' in line for line in file):
                return end
        read = rows(self.path, layout, self._text.codec, span)
        for _ in read:
            if read.undecided is not None:
                break
        if read.undecided is None:
            return end
        number = read.undecided - 1 - span.lines
        with open_bytes(self.path, span) as file:
            return _Lines(span.start + sum(len(line) for line in islice(file, number)), number)

    def _layout(self, since: Position, stop: int) -> Layout | None:
        if "layout" in since:
            return Layout(**since["layout"])
        try:
            return self._text.layout(self.path, self._columns, Span(0, stop))
        except NoRowsError:
            return None

    def _refuse_other_file(self, since: Position) -> None:
        if "offset" in since and self._checksum(since["offset"]) != since["before"]:
            raise InputError(
                f"{self.path} is not the file it was: it had been read up to byte {since['offset']:,}, and what stood "
                "before that is gone. Lines may only be appended to it."
            )

    def _checksum(self, offset: int) -> int:
        """Of the last bytes before an offset."""
        start = max(0, offset - _REMEMBERED_BYTES)
        with self._file() as file:
            file.seek(start)
            return zlib.crc32(file.read(offset - start))

    def _file(self) -> BinaryIO:
        try:
            return self.path.open("rb")
        except OSError as error:
            raise InputError(f"{self.path} cannot be read any more: {error}") from error
