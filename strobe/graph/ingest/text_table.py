"""Text tables: options, and parsing of blocks of lines by Arrow where it is certain to agree with ``records``."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from strobe.errors import InputError, OptionError
from strobe.graph.ingest import records, text
from strobe.graph.ingest.records import WHITESPACE, Row
from strobe.graph.ingest.table import BATCH_ROWS, LINE_COLUMN, ReadLog, SourceTable, prefetch, stage_batches
from strobe.graph.ingest.text import BOM, WHOLE_FILE, Layout, Span, open_bytes, os_errors_as_input_errors
from strobe.io.lazy_import import lazy_import

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import csv

    from strobe.graph.ingest.table import Connection
else:
    pa = lazy_import("pyarrow")
    csv = lazy_import("pyarrow.csv")


BLOCK_BYTES = 16 << 20
_HEX = re.compile(rb"0[xX]")
_BLANK_RUN = re.compile(rb"[ \t]+")
_IRREGULAR_BLANKS = re.compile(rb"\t|  | \r?\n|\n |\A | \r?\Z")
_COMMENT_MARKS = tuple(mark.encode() for mark in records.COMMENTS)
_BLANKS = records.BLANKS.encode()
_BOM = BOM.encode()


@dataclass(frozen=True)
class TextBlock:
    """Whole lines of a text file, from which ``comment_lines`` were removed."""

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

    def check_arrow_compatible(self, layout: Layout) -> None:
        """Raise ``ArrowInvalid`` unless Arrow, if it accepts the block, agrees with ``records``."""
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

    def check_no_hexadecimal(self) -> None:
        """Raise ``ArrowInvalid`` if an integer may be written as 0x10, which Arrow reads as 16."""
        if (b"x" in self.data or b"X" in self.data) and _HEX.search(self.data):
            raise pa.ArrowInvalid("Arrow takes 0x10 for a number")

    def is_tidy(self, layout: Layout) -> bool:
        """Return whether Arrow needs no cleaning: no byte order mark, and single blanks as delimiters."""
        if self.data.startswith(_BOM):
            return False
        return layout.delimiter != records.WHITESPACE or _IRREGULAR_BLANKS.search(self.data) is None

    def tidy(self, layout: Layout) -> TextBlock:
        """Return the block without blank lines, comments, carriage returns and redundant blanks."""
        lines, comment_lines = [], 0
        for line in self.data.removesuffix(b"\n").split(b"\n"):
            text = line.removesuffix(b"\r")
            if not text.strip(_BLANKS):
                continue
            if layout.delimiter == records.WHITESPACE:
                text = _BLANK_RUN.sub(b" ", text).strip(b" ")
            elif text.count(b'"') % 2:
                raise pa.ArrowInvalid("a quoted field that may hold a line end")
            if line.startswith(_COMMENT_MARKS) and not _is_row(text, layout):
                comment_lines += 1
            else:
                lines.append(text + b"\n")
        return TextBlock(b"".join(lines), comment_lines)

    def _has_bare_carriage_return(self) -> bool:
        data = self.data
        return b"\r" in data and data.count(b"\r") != data.count(b"\r\n") + data.endswith(b"\r")

    def _is_well_quoted(self, delimiter: str) -> bool:
        """Return whether every quote begins a field, ends one, or is one of a pair within a quoted field.

        In pairs of quotes, the first stands where a field begins or right after a pair, the second where a field ends
        or right before a pair.
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


def read_blocks(
    path: Path, layout: Layout, span: Span = WHOLE_FILE, block_bytes: int | None = None
) -> Iterator[TextBlock]:
    """Yield the file after its header in blocks of whole lines."""
    with os_errors_as_input_errors(path), open_bytes(path, span) as file:
        for _ in range(layout.skip):
            file.readline()
        size = block_bytes or BLOCK_BYTES
        if path.suffix != ".gz":
            size = min(size, path.stat().st_size + 1)  # a small file needs no large buffer
        buffer, filled = bytearray(size), 0
        starts_file = span.lines + layout.skip == 0
        while True:
            if filled == len(buffer):  # a line longer than the buffer
                buffer = buffer + bytes(len(buffer))
            read = file.readinto(memoryview(buffer)[filled:])  # type: ignore[attr-defined]
            filled += read
            end = filled if not read else buffer.rfind(b"\n", 0, filled) + 1
            if end:
                begin = len(_BOM) if starts_file and buffer.startswith(_BOM) else 0
                if end > begin:
                    yield TextBlock(bytes(memoryview(buffer)[begin:end]))
                starts_file = False
                buffer[: filled - end] = buffer[end:filled]
                filled -= end
            if not read:
                return


def _is_row(line: bytes, layout: Layout) -> bool:
    try:
        return len(records.split_fields(line.decode(), layout.delimiter)) == len(layout.columns)
    except records.RowError:
        return False


_ARROW_BLOCK_BYTES = 1 << 20
_ARROW_TYPES = {"BIGINT": "int64", "DOUBLE": "float64", "VARCHAR": "string"}
_ASCII = "".join(map(chr, range(128))) + "\\u0041\\x41\\n+AGE-~{VPND~}\x1b$BF|\x1b(B"
"""Every ASCII character, and sequences that encodings such as utf-7 or unicode_escape decode differently."""


@dataclass(frozen=True)
class TextOptions:
    """Format of text files; None is detected from the first lines.

    Args:
        delimiter: one ASCII character; a space stands for any run of spaces and tabs.
        header: whether the first row names the columns.
        encoding: any superset of ASCII, such as utf-8, latin-1, cp1252 or gbk.
    """

    delimiter: str | None = None
    header: bool | None = None
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        delimiter = self.delimiter
        if delimiter is not None and not (isinstance(delimiter, str) and len(delimiter) == 1):
            raise OptionError(f"a delimiter is one character, not {delimiter!r}")
        if delimiter is not None and (not delimiter.isascii() or delimiter in '"\n\r\0'):
            raise OptionError(f"a delimiter is an ASCII character, and no quote, line end or NUL: not {delimiter!r}")
        if self.codec is None:
            raise OptionError(
                f"a file in {self.encoding!r} cannot be split into lines and fields: convert the file to utf-8 first"
            )

    @property
    def codec(self) -> str | None:
        """Python's name of the encoding; None if it is no superset of ASCII."""
        try:
            name = codecs.lookup(self.encoding).name.removesuffix("-sig")  # a byte order mark is always skipped
            plain = _ASCII.encode(name) == _ASCII.encode("ascii") and _ASCII.encode("ascii").decode(name) == _ASCII
        except LookupError as error:
            raise OptionError(f"there is no encoding named {self.encoding!r}") from error
        except (TypeError, ValueError):
            return None
        return name if plain else None

    def layout(self, path: Path, wanted: Iterable[str | int], span: text.Span = text.WHOLE_FILE) -> text.Layout:
        """Return the layout of a file; it has a header if columns are wanted by name."""
        header = self.header if self.header is not None else any(isinstance(name, str) for name in wanted)
        assert self.codec is not None
        return text.sniff(path, delimiter=self.delimiter, header=header, encoding=self.codec, span=span)


@dataclass(frozen=True)
class TextTable(SourceTable):
    """A text file, or a span of it, of known layout."""

    path: Path = Path()
    layout: text.Layout = field(default_factory=lambda: text.Layout("", [], 0))
    encoding: str = "utf-8"
    span: text.Span = text.WHOLE_FILE

    def position(self, wanted: str | int) -> int:
        if len(self.types) == 1 and wanted not in self.types:
            raise InputError(f"{self.name} was read as one column: is {self.layout.delimiter!r} its delimiter?")
        return super().position(wanted)

    def samples(self, con: Connection, wanted: str | int, count: int = 1000) -> list[str]:
        at = self.position(wanted)
        read = islice(text.read_rows(self.path, self.layout, self.encoding, self.span), count)
        return [row.fields[at] for row in read if row.fields is not None]

    def read_fast(self, con: Connection, kinds: Mapping[str | int, str]) -> SourceTable | None:
        """Return a stream of typed columns. Arrow is strict: a value of another type ends the stream."""
        if self.encoding != "utf-8":
            return None
        chosen = {self.position(wanted): kind for wanted, kind in kinds.items()}
        schema = pa.schema([(f"c{at}", getattr(pa, _ARROW_TYPES[kind])()) for at, kind in chosen.items()])
        stream, log = f"stream_{uuid4().hex}", ReadLog(comment_lines=self.layout.comment_lines)
        batches = _log_failures(prefetch(self._batches(schema, log)), log)
        con.register(stream, pa.RecordBatchReader.from_batches(schema, batches))
        types = {name: chosen.get(at, kind) for at, (name, kind) in enumerate(self.types.items())}
        return SourceTable(self.name, types, stream, self.unit, log)

    def _batches(self, schema: pa.Schema, log: ReadLog) -> Iterator[pa.RecordBatch]:
        """Parse every block in all cores; clean and retry a block that Arrow refuses."""
        for block in read_blocks(self.path, self.layout, self.span):
            block.check_arrow_compatible(self.layout)
            block.check_no_hexadecimal()
            try:
                parsed = self._parse(block, schema)
            except pa.ArrowInvalid:
                tidy = block.tidy(self.layout)
                log.comment_lines += tidy.comment_lines
                parsed = self._parse(tidy, schema)
            yield from parsed.to_batches()

    def _parse(self, block: TextBlock, schema: pa.Schema) -> pa.Table:
        """Return the rows of a block, one per line."""
        if not block.is_tidy(self.layout):
            raise pa.ArrowInvalid("runs of blanks, or a byte order mark")
        if not block.num_lines:
            return schema.empty_table()
        quotes = self.layout.delimiter != WHITESPACE
        parsed = csv.read_csv(
            pa.BufferReader(block.data),
            csv.ReadOptions(column_names=[f"c{at}" for at in range(len(self.types))], block_size=_ARROW_BLOCK_BYTES),
            # Fields with line ends must not be cut there; checking for them costs half the speed.
            csv.ParseOptions(
                delimiter=self.layout.delimiter,
                quote_char='"' if quotes else False,
                newlines_in_values=quotes and block.has_quotes,
            ),
            csv.ConvertOptions(column_types=schema, include_columns=schema.names, null_values=[""]),
        )
        if parsed.num_rows != block.num_lines:
            raise pa.ArrowInvalid(f"{parsed.num_rows} rows in {block.num_lines} lines")
        return parsed

    def read_with_lines(self, con: Connection, wanted: Sequence[str | int]) -> tuple[SourceTable, list[Row]]:
        bad: list[Row] = []
        log = ReadLog(comment_lines=self.layout.comment_lines)
        chosen = sorted({self.position(column) for column in wanted})
        table = stage_batches(con, self._batches_with_lines(chosen, bad, log), self.name)
        columns = ", ".join(f"c{k} AS c{at}" for k, at in enumerate(chosen))
        return replace(self, sql=f"(SELECT place, {columns} FROM {table.sql})", log=log), bad

    def _batches_with_lines(self, chosen: list[int], bad: list[Row], log: ReadLog) -> Iterator[pa.RecordBatch]:
        """Yield the chosen columns as text after a column with their lines; a batch without rows comes first.

        Arrow reads blocks while every line is a row; from the first other block on, Python does.
        """
        columns = pa.schema([(f"c{at}", pa.string()) for at in chosen])
        schema = pa.schema([(LINE_COLUMN, pa.int64()), *columns])
        yield pa.RecordBatch.from_pylist([], schema=schema)
        line = self.span.lines + self.layout.skip
        if self.encoding == "utf-8":
            for block in read_blocks(self.path, self.layout, self.span):
                try:
                    block.check_arrow_compatible(self.layout)
                    parsed = self._parse(block, columns)
                except pa.ArrowInvalid:
                    break
                places = pa.array(np.arange(line + 1, line + 1 + parsed.num_rows))
                line += parsed.num_rows
                yield from pa.Table.from_arrays([places, *parsed.columns], schema=schema).to_batches()
            else:
                return
        rest = replace(self.layout, skip=line - self.span.lines)
        read = text.read_rows(self.path, rest, self.encoding, self.span)
        good = _collect_bad_rows(read, bad)
        while chunk := list(islice(good, BATCH_ROWS)):
            fields = [row.fields for row in chunk if row.fields is not None]
            arrays = [pa.array([row.line for row in chunk])]
            arrays += [pa.array([row[at] for row in fields], pa.string()) for at in chosen]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        log.comment_lines += read.comment_lines


def open_text_table(
    path: Path, options: TextOptions, layout: text.Layout, span: text.Span = text.WHOLE_FILE
) -> SourceTable:
    """Open a text file, or a span of it, of known layout."""
    types = dict.fromkeys(layout.columns, "VARCHAR")
    assert options.codec is not None
    return TextTable(str(path), types, "", "line", path=path, layout=layout, encoding=options.codec, span=span)


def _log_failures(batches: Iterator[pa.RecordBatch], log: ReadLog) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except BaseException as error:
        log.failures.append(error)
        raise


def _collect_bad_rows(read: Iterable[Row], bad: list[Row]) -> Iterator[Row]:
    for row in read:
        if row.fields is None:
            bad.append(row)
        else:
            yield row
