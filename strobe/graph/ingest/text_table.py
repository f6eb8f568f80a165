"""Text files as tables: read by Arrow while all is well, and line by line when something is wrong."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.csv

from strobe.errors import InputError, OptionError
from strobe.graph.ingest import text
from strobe.graph.ingest.ahead import ahead
from strobe.graph.ingest.batches import BATCH_ROWS
from strobe.graph.ingest.blocks import Block, blocks
from strobe.graph.ingest.records import WHITESPACE, Row
from strobe.graph.ingest.table import PLACE, ReadLog, Table, staged

if TYPE_CHECKING:
    import duckdb

    Connection = duckdb.DuckDBPyConnection

_PARSED_AT_ONCE = 1 << 20
_ARROW = {"BIGINT": pa.int64(), "DOUBLE": pa.float64(), "VARCHAR": pa.string()}
_ASCII = "".join(map(chr, range(128))) + "\\u0041\\x41\\n+AGE-~{VPND~}\x1b$BF|\x1b(B"
"""Every ASCII character, and sequences that encodings such as utf-7 or unicode_escape take for others."""


@dataclass(frozen=True)
class TextOptions:
    """How text files are read; None is found from the first lines.

    Args:
        delimiter: one ASCII character; a space stands for any run of spaces and tabs.
        header: whether the first row names the columns.
        encoding: any that writes ASCII characters as ASCII does, such as utf-8, latin-1, cp1252 or gbk.
    """

    delimiter: str | None = None
    header: bool | None = None
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        given = self.delimiter
        if given is not None and not (isinstance(given, str) and len(given) == 1):
            raise OptionError(f"a delimiter is one character, not {given!r}")
        if given is not None and (not given.isascii() or given in '"\n\r\0'):
            raise OptionError(f"a delimiter is an ASCII character, and no quote, line end or NUL: not {given!r}")
        if self.codec is None:
            raise OptionError(
                f"a file in {self.encoding!r} cannot be split into lines and fields: convert the file to utf-8 first"
            )

    @property
    def codec(self) -> str | None:
        """Python's name of the encoding; None where it does not write ASCII characters as ASCII does."""
        try:
            name = codecs.lookup(self.encoding).name.removesuffix("-sig")  # a byte order mark is always skipped
            plain = _ASCII.encode(name) == _ASCII.encode("ascii") and _ASCII.encode("ascii").decode(name) == _ASCII
        except LookupError as error:
            raise OptionError(f"there is no encoding named {self.encoding!r}") from error
        except (TypeError, ValueError):
            return None
        return name if plain else None

    def layout(self, path: Path, wanted: Iterable[str | int], span: text.Span = text.WHOLE) -> text.Layout:
        """How a file is laid out; it has a header if columns are wanted by name."""
        header = self.header if self.header is not None else any(isinstance(name, str) for name in wanted)
        assert self.codec is not None
        return text.sniff(path, delimiter=self.delimiter, header=header, encoding=self.codec, span=span)


@dataclass(frozen=True)
class TextFile(Table):
    """A text file, or a stretch of it, whose layout is known."""

    path: Path = Path()
    layout: text.Layout = field(default_factory=lambda: text.Layout("", [], 0))
    encoding: str = "utf-8"
    span: text.Span = text.WHOLE

    def position(self, wanted: str | int) -> int:
        if len(self.types) == 1 and wanted not in self.types:
            raise InputError(f"{self.name} was read as one column: is {self.layout.delimiter!r} its delimiter?")
        return super().position(wanted)

    def samples(self, con: Connection, wanted: str | int, count: int = 1000) -> list[str]:
        at = self.position(wanted)
        read = islice(text.rows(self.path, self.layout, self.encoding, self.span), count)
        return [row.fields[at] for row in read if row.fields is not None]

    def quickly(self, con: Connection, kinds: Mapping[str | int, str]) -> Table | None:
        """A stream of typed columns. Arrow is strict: what is no number where one belongs ends the stream."""
        if self.encoding != "utf-8":
            return None
        chosen = {self.position(wanted): kind for wanted, kind in kinds.items()}
        schema = pa.schema([(f"c{at}", _ARROW[kind]) for at, kind in chosen.items()])
        stream, log = f"stream_{uuid4().hex}", ReadLog(comment_lines=self.layout.comment_lines)
        batches = _watched(ahead(self._batches(schema, log)), log)
        con.register(stream, pa.RecordBatchReader.from_batches(schema, batches))
        types = {name: chosen.get(at, kind) for at, (name, kind) in enumerate(self.types.items())}
        return Table(self.name, types, stream, self.unit, log)

    def _batches(self, schema: pa.Schema, log: ReadLog) -> Iterator[pa.RecordBatch]:
        """Every block of lines is parsed by all cores; one that Arrow stumbles over is tidied and tried again."""
        for block in blocks(self.path, self.layout, self.span):
            block.refuse_what_arrow_reads_otherwise(self.layout)
            block.refuse_hexadecimal()
            try:
                parsed = self._parsed(block, schema)
            except pa.ArrowInvalid:
                tidy = block.tidied(self.layout)
                log.comment_lines += tidy.comment_lines
                parsed = self._parsed(tidy, schema)
            yield from parsed.to_batches()

    def _parsed(self, block: Block, schema: pa.Schema) -> pa.Table:
        """The rows of a block, one per line."""
        if not block.is_tidy(self.layout):
            raise pa.ArrowInvalid("runs of blanks, or a byte order mark")
        if not block.num_lines:
            return schema.empty_table()
        quotes = self.layout.delimiter != WHITESPACE
        parsed = pyarrow.csv.read_csv(
            pa.BufferReader(block.data),
            pyarrow.csv.ReadOptions(
                column_names=[f"c{at}" for at in range(len(self.types))], block_size=_PARSED_AT_ONCE
            ),
            # Quoted fields may hold line ends, and must not be cut there; to heed that costs half the speed.
            pyarrow.csv.ParseOptions(
                delimiter=self.layout.delimiter,
                quote_char='"' if quotes else False,
                newlines_in_values=quotes and block.has_quotes,
            ),
            pyarrow.csv.ConvertOptions(column_types=schema, include_columns=schema.names, null_values=[""]),
        )
        if parsed.num_rows != block.num_lines:
            raise pa.ArrowInvalid(f"{parsed.num_rows} rows in {block.num_lines} lines")
        return parsed

    def carefully(self, con: Connection, wanted: Sequence[str | int]) -> tuple[Table, list[Row]]:
        bad: list[Row] = []
        log = ReadLog(comment_lines=self.layout.comment_lines)
        chosen = sorted({self.position(column) for column in wanted})
        table = staged(con, self._placed(chosen, bad, log), self.name)
        columns = ", ".join(f"c{k} AS c{at}" for k, at in enumerate(chosen))
        return replace(self, sql=f"(SELECT place, {columns} FROM {table.sql})", log=log), bad

    def _placed(self, chosen: list[int], bad: list[Row], log: ReadLog) -> Iterator[pa.RecordBatch]:
        """The chosen columns as text, after a column with their lines; a batch without rows comes first.

        Arrow reads them as long as every line is a row; from the first block where it is not, Python does.
        """
        columns = pa.schema([(f"c{at}", pa.string()) for at in chosen])
        schema = pa.schema([(PLACE, pa.int64()), *columns])
        yield pa.RecordBatch.from_pylist([], schema=schema)
        line = self.span.lines + self.layout.skip
        if self.encoding == "utf-8":
            for block in blocks(self.path, self.layout, self.span):
                try:
                    block.refuse_what_arrow_reads_otherwise(self.layout)
                    parsed = self._parsed(block, columns)
                except pa.ArrowInvalid:
                    break
                places = pa.array(np.arange(line + 1, line + 1 + parsed.num_rows))
                line += parsed.num_rows
                yield from pa.Table.from_arrays([places, *parsed.columns], schema=schema).to_batches()
            else:
                return
        rest = replace(self.layout, skip=line - self.span.lines)
        read = text.rows(self.path, rest, self.encoding, self.span)
        good = _good(read, bad)
        while chunk := list(islice(good, BATCH_ROWS)):
            fields = [row.fields for row in chunk if row.fields is not None]
            arrays = [pa.array([row.line for row in chunk])]
            arrays += [pa.array([row[at] for row in fields], pa.string()) for at in chosen]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        log.comment_lines += read.comment_lines


def text_table(path: Path, options: TextOptions, layout: text.Layout, span: text.Span = text.WHOLE) -> Table:
    """The rows of a text file, or of a stretch of it, whose layout is known."""
    types = dict.fromkeys(layout.columns, "VARCHAR")
    assert options.codec is not None
    return TextFile(str(path), types, "", "line", path=path, layout=layout, encoding=options.codec, span=span)


def _watched(batches: Iterator[pa.RecordBatch], log: ReadLog) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except BaseException as error:
        log.failures.append(error)
        raise


def _good(read: Iterable[Row], bad: list[Row]) -> Iterator[Row]:
    for row in read:
        if row.fields is None:
            bad.append(row)
        else:
            yield row
