"""Blocks of lines that Arrow may parse: only those of which it is certain to make what ``records`` would."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strobe.graph.ingest import records
from strobe.graph.ingest.text import BOM, WHOLE, Layout, Span, open_bytes, readable

BLOCK_BYTES = 16 << 20
_HEX = re.compile(rb"0[xX]")
_BLANK_RUN = re.compile(rb"[ \t]+")
_IRREGULAR_BLANKS = re.compile(rb"\t|  | \r?\n|\n |\A | \r?\Z")
_COMMENTS = tuple(mark.encode() for mark in records.COMMENTS)
_BLANKS = records.BLANKS.encode()
_BOM = BOM.encode()


@dataclass(frozen=True)
class Block:
    """Some whole lines of a text file, of which ``comment_lines`` were taken out."""

    data: bytes
    comment_lines: int = 0

    @cached_property
    def _bytes(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self.data, np.uint8)

    @cached_property
    def num_lines(self) -> int:
        unfinished = self.data != b"" and not self.data.endswith(b"\n")
        return int(np.count_nonzero(self._bytes == ord("\n"))) + unfinished

    @cached_property
    def has_quotes(self) -> bool:
        return b'"' in self.data

    def refuse_what_arrow_reads_otherwise(self, layout: Layout) -> None:
        """Raise ``ArrowInvalid`` unless Arrow, if it accepts the block line for line, reads it by our rules."""
        if len(layout.columns) == 1:
            raise pa.ArrowInvalid("a blank line would be a row")
        if self._has_bare_carriage_return():
            raise pa.ArrowInvalid("Arrow takes a carriage return for a line end")
        if not self.data.isascii():
            try:
                self.data.decode()
            except UnicodeDecodeError as error:
                raise pa.ArrowInvalid("Arrow does not decode columns that are left out") from error
        if layout.delimiter != records.WHITESPACE and not self._is_well_quoted(layout.delimiter):
            raise pa.ArrowInvalid("a quote that does not begin or end a field")

    def refuse_hexadecimal(self) -> None:
        """Raise ``ArrowInvalid`` where an integer may be written as 0x10, which Arrow takes for 16."""
        if (b"x" in self.data or b"X" in self.data) and _HEX.search(self.data):
            raise pa.ArrowInvalid("Arrow takes 0x10 for a number")

    def is_tidy(self, layout: Layout) -> bool:
        """Whether Arrow takes nothing out: no byte order mark, of every block, and single blanks where they delimit."""
        if self.data.startswith(_BOM):
            return False
        return layout.delimiter != records.WHITESPACE or _IRREGULAR_BLANKS.search(self.data) is None

    def tidied(self, layout: Layout) -> Block:
        """The block without blank lines, comments, carriage returns and needless blanks."""
        lines, comment_lines = [], 0
        for line in self.data.removesuffix(b"\n").split(b"\n"):
            kept = line.removesuffix(b"\r")
            if not kept.strip(_BLANKS):
                continue
            if layout.delimiter == records.WHITESPACE:
                kept = _BLANK_RUN.sub(b" ", kept).strip(b" ")
            elif kept.count(b'"') % 2:
                raise pa.ArrowInvalid("a quoted field that may hold a line end")
            if line.startswith(_COMMENTS) and not _is_row(kept, layout):
                comment_lines += 1
            else:
                lines.append(kept + b"\n")
        return Block(b"".join(lines), comment_lines)

    def _has_bare_carriage_return(self) -> bool:
        data = self.data
        return b"\r" in data and data.count(b"\r") != data.count(b"\r\n") + data.endswith(b"\r")

    def _is_well_quoted(self, delimiter: str) -> bool:
        """Whether every quote begins a field, ends one, or is one of a pair within a quoted field.

        Taken two by two, the first of two quotes stands where a field begins or right after another two, the second
        where a field ends or right before another two.
        """
        if not self.has_quotes:
            return True
        at = np.flatnonzero(self._bytes == ord('"'))
        if at.size % 2:
            return False
        opening, closing = at[::2], at[1::2]
        padded = np.concatenate(([ord("\n")], self._bytes, [ord("\n"), ord("\n")]))  # position k is at k + 1
        doubled = opening[1:] == closing[:-1] + 1
        before, after, later = padded[opening], padded[closing + 2], padded[closing + 3]
        ends = (after == ord(delimiter)) | (after == ord("\n")) | ((after == ord("\r")) & (later == ord("\n")))
        begins = (before == ord(delimiter)) | (before == ord("\n"))
        begins[1:] |= doubled
        ends[:-1] |= doubled
        return bool(begins.all() and ends.all())


def blocks(path: Path, layout: Layout, span: Span = WHOLE, block_bytes: int | None = None) -> Iterator[Block]:
    """The file after its header in blocks of whole lines."""
    with readable(path), open_bytes(path, span) as file:
        for _ in range(layout.skip):
            file.readline()
        size = block_bytes or BLOCK_BYTES
        if path.suffix != ".gz":
            size = min(size, path.stat().st_size + 1)  # a small file needs no large buffer
        buffer, held = bytearray(size), 0
        starts_file = span.lines + layout.skip == 0
        while True:
            if held == len(buffer):  # a line longer than the buffer
                buffer = buffer + bytes(len(buffer))
            read = file.readinto(memoryview(buffer)[held:])  # type: ignore[attr-defined]
            held += read
            end = held if not read else buffer.rfind(b"\n", 0, held) + 1
            if end:
                begin = len(_BOM) if starts_file and buffer.startswith(_BOM) else 0
                if end > begin:
                    yield Block(bytes(memoryview(buffer)[begin:end]))
                starts_file = False
                buffer[: held - end] = buffer[end:held]
                held -= end
            if not read:
                return


def _is_row(line: bytes, layout: Layout) -> bool:
    try:
        return len(records.split(line.decode(), layout.delimiter)) == len(layout.columns)
    except records.RowError:
        return False
