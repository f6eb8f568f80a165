"""Columns of random types, with the Python values that they hold."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.fuzzing import slow_values
from benchmarks.fuzzing.slow_values import EPOCH


@dataclass
class Column:
    """Values, the numpy or Arrow type they are given in, and what a time among them is counted in."""

    values: list[Any]
    kind: str
    type: Any
    unit: str = "number"
    guessable: bool = False

    def arrow(self) -> pa.Array:
        kind = pa.from_numpy_dtype(self.type) if isinstance(self.type, str) and "M8" not in self.type else self.type
        if isinstance(kind, str):
            return pa.array(self.numpy())
        if kind == pa.float16():
            return pa.array(np.array([np.nan if value is None else value for value in self.values], np.float16))
        return pa.array(self.values, kind)

    def numpy(self) -> Any:
        if isinstance(self.type, str):
            if "M8" in self.type:
                naive = [np.datetime64(value.replace(tzinfo=None), "us") for value in self.values]
                return np.array(naive).astype(self.type)
            return np.array(self.values, self.type)
        return np.array(self.values, str)

    def time(self, value: Any) -> float | None:
        """The time a value stands for, None where it stands for none."""
        if value is None or value != value:
            return None
        if isinstance(value, str):
            return slow_values.time(value, self.unit)
        if isinstance(value, datetime):
            return ((value if value.tzinfo else value.replace(tzinfo=timezone.utc)) - EPOCH) / timedelta(seconds=1)  # noqa: UP017
        if isinstance(value, date):
            return float((value - EPOCH.date()).days * 86400)
        seconds = float(value) / 1000 if self.unit == "ms" else float(value)
        low, high = (-(2**53), 2**53) if self.unit == "number" else (slow_values.YEAR_1, slow_values.YEAR_10000)
        return seconds if low <= seconds < high else None

    def weight(self, value: Any) -> float | None:
        """A weight as float32."""
        if value is None:
            return None
        if isinstance(value, str):
            return slow_values.weight(value)
        with np.errstate(over="ignore"):
            kept = float(np.float32(value))
        return kept if np.isfinite(kept) else None


def _with_nulls(rng: random.Random, values: list[Any], strict: bool) -> list[Any]:
    return values if strict or rng.random() < 0.7 else [None if rng.random() < 0.1 else value for value in values]


def ids(rng: random.Random, rows: int, kind: str, strict: bool) -> Column:
    """Node ids, a few of them bad."""
    if kind == "string" or rng.random() < 0.15:
        words = ["a", "b", "é", " c", "7", "12", "0"] if kind == "string" else ["1", " 2 ", "3", "5"]
        texts = [rng.choice(words) if rng.random() < 0.98 else rng.choice(["", "-4"]) for _ in range(rows)]
        return Column(_with_nulls(rng, texts, strict), "str", pa.string())
    dtype = rng.choice(
        ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f8", "f4"] + ([">i4", ">i8"] if strict else [])
    )
    low = -1 if dtype[-2] in "if" and rng.random() < 0.1 else 0
    values: list[Any] = [rng.randint(low, 9) for _ in range(rows)]
    if dtype == "u8" and rng.random() < 0.1:
        values[0] = 2**63 + 5
    if "f" in dtype:
        values = [float(value) + (0.5 if rng.random() < 0.03 else 0.0) for value in values]
    return Column(_with_nulls(rng, values, strict), dtype, dtype)


def numbers(rng: random.Random, rows: int, strict: bool) -> Column:
    """Times that are numbers: plain ones, unix seconds or milliseconds."""
    unit = rng.choice(["number", "number", "s", "ms"])
    dtype = rng.choice(["i8", "f8", "str", "u4", "decimal"] + ([">f8", ">i8"] if strict else []))
    base = 0 if unit == "number" else 1_600_000_000
    span = 60 if unit == "number" else 400_000
    values: list[Any] = [base + rng.randrange(span) for _ in range(rows)]
    if unit == "ms":
        dtype = rng.choice(["i8", "f8", "str"])
        values = [value * 1000 + rng.randrange(1000) for value in values]
    elif dtype in ("f8", ">f8", "str", "decimal") and rng.random() < 0.7:
        values = [value + rng.randrange(10) / 10 for value in values]
    values = _with_nulls(rng, values, strict)
    if dtype == "str" or (dtype == "decimal" and strict):
        return Column([None if v is None else str(v) for v in values], "str", pa.string(), unit)
    if dtype == "decimal":
        exact = [None if v is None else Decimal(str(v)) for v in values]
        return Column(exact, "decimal", pa.decimal128(18, 3), unit)
    return Column([float(v) if "f" in dtype and v is not None else v for v in values], dtype, dtype, unit)


def dates(rng: random.Random, rows: int, strict: bool) -> Column:
    """Times that are dates: typed, with and without a zone, or written in several ways."""
    span = rng.choice([10_000, 10**6, 10**8])
    start = rng.choice(
        [datetime(2020, 2, 28, 23), datetime(1969, 12, 31, 12), datetime(2024, 12, 30), datetime(1583, 1, 1)]
    )
    moments = [start + timedelta(seconds=rng.randrange(span), milliseconds=rng.randrange(1000)) for _ in range(rows)]
    how = rng.choice(["M8", "str", "str"] if strict else ["timestamp", "zoned", "date", "str", "str", "str"])
    if how == "M8":
        unit = rng.choice(["ms", "us", "ns" if start.year > 1700 else "us", "s", "m", "h", "D", "M", "Y", "W"])
        cut = [np.datetime64(moment, "us").astype(f"M8[{unit}]").astype("M8[us]").item() for moment in moments]
        return Column(cut, f"M8[{unit}]", f"{rng.choice('<>')}M8[{unit}]", "iso", True)
    if how == "str":
        texts = [_written(rng, moment) for moment in moments]
        return Column(_with_nulls(rng, texts, strict), "str", pa.string(), "iso")
    if how == "date":
        days = _with_nulls(rng, [moment.date() for moment in moments], strict)
        return Column(days, "date", rng.choice([pa.date32(), pa.date64()]), "iso", True)
    unit = rng.choice(["s", "ms", "us", "ns" if start.year > 1700 else "us"])  # nanoseconds begin in 1677
    whole = [moment.replace(microsecond=0) if unit == "s" else moment for moment in moments]
    if how == "zoned":
        zoned = [moment.replace(tzinfo=timezone.utc) for moment in whole]  # noqa: UP017
        zone = rng.choice(["UTC", "Europe/Paris", "America/New_York", "+05:30"])
        return Column(_with_nulls(rng, zoned, strict), f"timestamp {zone}", pa.timestamp(unit, zone), "iso", True)
    return Column(_with_nulls(rng, whole, strict), f"timestamp {unit}", pa.timestamp(unit), "iso", True)


_ODD_DATES = [
    "2024-13-01",
    "2024-02-30",
    "2023-02-29",
    "2024-01-01T24:00:00",
    "2024-01-01T24:00:01",
    "2024-01-01T23:59:60",
]
_ODD_DATES += [
    "soon",
    "",
    "epoch",
    "infinity",
    "20240101",
    "2024-001",
    "2024-W01-1",
    "01/02/2024",
    "0000-01-01",
    "2024-1",
]
_ODD_DATES += ["2024-01-01T00:00:00+16:00", "10000-01-01", "2024-01-01 (BC)", "2024-01-01T00:00:00 Europe/Paris"]
_ODD_DATES += ["2024-01-01T1:02", "2024-00-10", "1_024-01-01", "2024-01-01T10:61", "0001-01-01", "9999-12-31T23:59:59"]
_ODD_DATES += ["٢٠٢٤-٠١-٠١", "2024-01-01T", "2024-01-01T00:00:00.", "2024-01-01 10:00:00+0530", "2024-01-01T10"]


def _written(rng: random.Random, moment: datetime) -> str:
    text = rng.choice([
        moment.isoformat(), moment.isoformat(" "), moment.isoformat(timespec="milliseconds"), moment.isoformat() + "Z",
        moment.isoformat(timespec="seconds") + rng.choice(["+02:00", "-0530", "+09", "-00:30", " UTC", "+15:59"]),
        moment.isoformat(timespec="minutes"), moment.date().isoformat(), f"{moment.year:04}-{moment.month:02}",
        f"{moment.year:04}-{moment.month}-{moment.day}", f"{moment.year:04}/{moment.month:02}/{moment.day:02}",
        f" {moment.isoformat()}\t", moment.isoformat() + "123",
    ])  # fmt: skip
    if rng.random() < 0.05:
        text = rng.choice(_ODD_DATES)
    return text


def weights(rng: random.Random, rows: int, strict: bool) -> Column:
    """Edge weights, a few of them bad."""
    dtype = rng.choice(["f8", "f4", "f2", "i4", "u1", "?", "str", "decimal"])
    if dtype in ("f8", "f4", "f2"):
        odd = [float("nan"), float("inf"), 1e300 if dtype == "f8" else 1.0]
        values: list[Any] = [float(np.dtype(dtype).type(rng.uniform(-9, 9))) for _ in range(rows)]
        values = [rng.choice(odd) if rng.random() < 0.02 else value for value in values]
        return Column(_with_nulls(rng, values, strict or dtype == "f2"), dtype, dtype)
    if dtype == "?":
        return Column(_with_nulls(rng, [rng.random() < 0.5 for _ in range(rows)], strict), dtype, dtype)
    values = [rng.randrange(200) for _ in range(rows)]
    if dtype == "str":
        texts = [
            rng.choice([str(value), f"{value}.5", f"{value}e-2", "1_0"] if rng.random() < 0.1 else [str(value)])
            for value in values
        ]
        return Column(_with_nulls(rng, texts, strict), dtype, pa.string())
    if dtype == "decimal" and not strict:
        exact = [Decimal(value) / 4 for value in values]
        return Column(_with_nulls(rng, exact, strict), dtype, pa.decimal128(10, 2))
    return Column(_with_nulls(rng, values, strict), "i4", "i4")


def marks(rng: random.Random, rows: int) -> Column:
    """Names of snapshots."""
    if rng.random() < 0.5:
        return Column([rng.randrange(12) for _ in range(rows)], "i4", "i4")
    return Column([rng.choice(["spring", "summer", "10", "9", "é"]) for _ in range(rows)], "str", pa.string())
