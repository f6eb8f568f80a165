"""Columns of ids, times, weights and labels: their SQL, when a value is valid, and why one is not.

One definition serves all sources: text of CSV files and typed columns of Parquet, Arrow and databases.
"""

from __future__ import annotations

import math
import re
import statistics
from dataclasses import dataclass
from typing import Literal

from strobe.errors import InputError, OptionError
from strobe.graph.ingest.records import BLANKS
from strobe.graph.ingest.table import SourceTable

Ids = Literal["integer", "string"]
TimeUnit = Literal["number", "s", "ms", "iso"]

_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT"}
_DATES = ("DATE", "TIMESTAMP")
_INTEGER = "-?[0-9]+"
_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
_NO_FINITE_NUMBER = "[+-]?([nN][aA][nN]|[iI][nN][fF]([iI][nN][iI][tT][yY])?)"
_MONTH = "[0-9]{4}-[0-9]{1,2}"
_DATE = (
    "[0-9]{4}(-[0-9]{1,2}-[0-9]{1,2}|/[0-9]{1,2}/[0-9]{1,2})"
    r"([T ][0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?(Z| UTC|[+-](0[0-9]|1[0-5])(:?[0-5][0-9])?)?)?"
)
"""Numbers and dates in text, between blanks. A cast alone would read 1_0 as 10 and 0x10 as 16."""

YEAR_1, YEAR_10000 = -62135596800, 253402300800


@dataclass(frozen=True)
class ColumnSql:
    """A column as SQL: its value, whether it is valid (never NULL), and the reason if it is not.

    ``name`` is its staged name, ``source`` the table's column by name or position, and ``kind`` the DuckDB type as
    which a text file's column is first read.
    """

    name: str
    source: str | int
    value: str
    is_valid: str
    reason: str
    kind: str

    @property
    def label(self) -> str:
        """Name of the column in messages."""
        return self.source if isinstance(self.source, str) else f"#{self.source}"


def check_column_refs(**columns: object) -> None:
    """Raise unless columns are given by name or position; None stands for no column."""
    for role, column in columns.items():
        if column is not None and (isinstance(column, bool) or not isinstance(column, str | int)):
            raise OptionError(f"{role} must be the name or the position of a column, not {column!r}")


def id_column(name: str, source: str | int, table: SourceTable, ids: Ids) -> ColumnSql:
    """Return the column of a node id: a non-negative 64-bit integer, or any non-empty text."""
    column, kind = table.column(source), table.type_of(source)
    if ids == "string":
        value = column if kind == "VARCHAR" else f"CAST({column} AS VARCHAR)"
        return ColumnSql(
            name, source, value, f"coalesce({column} IS NOT NULL AND {value} <> '', false)", "'is empty'", "VARCHAR"
        )
    value = f"TRY_CAST({column} AS BIGINT)"
    if kind == "VARCHAR":
        value = f"CASE WHEN {_matches(column, _INTEGER)} THEN {value} END"
    good = f"{value} >= 0"
    if kind in ("FLOAT", "DOUBLE") or kind.startswith("DECIMAL"):
        good += f" AND {value} = {column}"
    elif kind != "VARCHAR" and kind not in _INTEGERS:
        raise InputError(f"column {source!r} has type {kind}, which is no integer: read the ids as strings")
    text = _TRIM_SQL.format(column)
    reason = (
        f"CASE {_WHEN_EMPTY_SQL.format(column)} "
        f"WHEN regexp_full_match({text}, '-[0-9]+') THEN 'is negative' "
        f"WHEN regexp_full_match({text}, '[0-9]{{19,}}') AND {value} IS NULL THEN 'does not fit into 64 bits' "
        "ELSE 'is not an integer (ids that are names need --ids string)' END"
    )
    return ColumnSql(name, source, value, f"coalesce({good}, false)", reason, "BIGINT")


def time_column(name: str, source: str | int, table: SourceTable, unit: TimeUnit) -> ColumnSql:
    """Return the column of a time as float64: seconds since 1970 for dates, plain numbers as they are."""
    column, kind = table.column(source), table.type_of(source)
    if kind.startswith(_DATES):
        # DuckDB has no epoch_ns for times with a zone.
        value = f"epoch(CAST({column} AS TIMESTAMPTZ))" if kind == "TIMESTAMPTZ_NS" else f"epoch({column})"
        unit = "iso"
    elif unit == "iso":
        # 2009-10 is a month, which a cast to a time stamp refuses
        text = _TRIM_SQL.format(column)
        value = (
            f"epoch(CASE WHEN {_matches(column, _DATE)} THEN TRY_CAST({text} AS TIMESTAMPTZ) "
            f"WHEN {_matches(column, _MONTH)} THEN TRY_CAST({text} || '-01' AS TIMESTAMPTZ) END)"
        )
    else:
        value = _number(column, kind) + (" / 1000" if unit == "ms" else "")
    low, high = (YEAR_1, YEAR_10000) if unit != "number" else (-(2**53), 2**53)
    good = f"coalesce({value} >= {low} AND {value} < {high}, false)"
    what = "a date (such as 2024-05-31 or 2024-05-31T12:30:00)" if unit == "iso" else "a number"
    reason = (
        f"CASE {_WHEN_EMPTY_SQL.format(column)} "
        f"WHEN {value} IS NULL THEN 'is not {what}' "
        f"WHEN NOT isfinite(CAST({value} AS DOUBLE)) THEN 'is not a finite number' "
        f"ELSE '{'is too large' if unit == 'number' else 'lies outside the years 1 to 9999'}' END"
    )
    return ColumnSql(name, source, value, good, reason, "VARCHAR" if unit == "iso" else "DOUBLE")


def number_column(name: str, source: str | int, table: SourceTable) -> ColumnSql:
    """Return the column of a finite number, stored as float32."""
    column, kind = table.column(source), table.type_of(source)
    # Text is converted through float64, as Arrow does: rounding twice differs from rounding once.
    value = f"TRY_CAST({_number(column, kind) if kind == 'VARCHAR' else column} AS FLOAT)"
    reason = (
        f"CASE {_WHEN_EMPTY_SQL.format(column)} "
        f"WHEN {_number(column, kind)} IS NULL THEN 'is not a number' ELSE 'is not a finite number' END"
    )
    return ColumnSql(name, source, value, f"coalesce(isfinite({value}), false)", reason, "DOUBLE")


_TRIM_SQL = "trim(CAST({} AS VARCHAR), ' ' || chr(9))"
"""SQL of a column as stripped text."""
_WHEN_EMPTY_SQL = f"WHEN {{0}} IS NULL OR {_TRIM_SQL.format('{0}')} = '' THEN 'is empty'"


def _matches(column: str, pattern: str) -> str:
    return f"regexp_full_match({_TRIM_SQL.format(column)}, '{pattern}')"


def _number(column: str, kind: str) -> str:
    """Return the SQL of a column as float64; NULL if it is no number."""
    if kind != "VARCHAR":
        return f"TRY_CAST({column} AS DOUBLE)"
    pattern = f"({_NUMBER})|({_NO_FINITE_NUMBER})"
    return f"CASE WHEN {_matches(column, pattern)} THEN TRY_CAST({_TRIM_SQL.format(column)} AS DOUBLE) END"


def text_column(name: str, source: str | int, table: SourceTable) -> ColumnSql:
    """Return the column that names a snapshot: any non-empty text."""
    column = table.column(source)
    value = f"trim(CAST({column} AS VARCHAR))"
    return ColumnSql(name, source, value, f"coalesce({value} <> '', false)", "'is empty'", "VARCHAR")


def label_value(column: str, kind: str) -> str:
    """Return the column of a label: an integer, a fraction or text; NULL if it is missing."""
    if kind in _INTEGERS or kind == "BOOLEAN":
        return f"TRY_CAST({column} AS BIGINT)"
    if kind in ("FLOAT", "DOUBLE"):
        return column
    if kind.startswith("DECIMAL"):
        return f"CAST({column} AS DOUBLE)"
    return f"nullif(trim(CAST({column} AS VARCHAR)), '')"


def is_number(text: str) -> bool:
    """Return whether a text is a number, infinite and nan included."""
    return re.fullmatch(f"({_NUMBER})|({_NO_FINITE_NUMBER})", text.strip(" \t")) is not None


def guess_ids(samples: list[str]) -> Ids:
    """Guess integers if at least half of the samples are: a name among them is a bad row, not a node.

    Numbers with leading zeros, such as accounts, are names: 007 is not 7.
    """
    texts = [text for sample in samples if sample and (text := sample.strip(BLANKS))]
    whole = [sample for sample in texts if re.fullmatch(_INTEGER, sample)]
    padded = any(len(sample) > 1 and sample.startswith("0") for sample in whole)
    return "integer" if 2 * len(whole) >= len(texts) and not padded else "string"


def guess_time(samples: list[str]) -> TimeUnit:
    """Guess dates, unix milliseconds, unix seconds (both from 1973 on) or plain numbers by majority."""
    texts = [text for sample in samples if (text := sample.strip(BLANKS))]
    numbers = [abs(float(text)) for text in texts if re.fullmatch(_NUMBER, text)]
    numbers = [number for number in numbers if math.isfinite(number)]
    dated = sum(len(text) >= 6 and "-" in text[1:] for text in texts)
    if len(numbers) < dated:
        return "iso"
    typical = statistics.median(numbers) if numbers else 0.0
    if typical < 1e8:
        return "number"
    return "s" if typical < 1e11 else "ms"
