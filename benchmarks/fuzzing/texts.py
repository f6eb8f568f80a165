"""Fuzz target: text tables, mostly valid, with a few mutations, against the slow reader."""

from __future__ import annotations

import csv
import gzip
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.fuzzing import slow_reader
from benchmarks.fuzzing.databases import SharedDatabase
from benchmarks.fuzzing.target import FuzzTarget, SilentDifferenceError
from strobe.errors import BadRowsError, StrobeError
from strobe.graph import DynamicGraph
from strobe.graph.ingest import Every, Into, TextOptions, ingest, text_table

COLUMNS = ("src", "dst", "time", "weight")
_ODD = ['"', '""', *"#%,;|'\\é_+-.e1a", "0x", '",', ',"', "\t", " ", "\r", "\n", "\r\n", "\0", "\ufeff", "\x0b", "\xa0"]
_ODD += ["\u2028", '"\n', '\n"', "# ", "\n#", "\n%"]
_VALUES = ["1_0", "0x10", "١", "nan", "inf", "-inf", "1e400", "1e-400", "+5", "-0", "007", "1e5", "1.", ".5", "-1"]
_VALUES += ["9223372036854775807", "9223372036854775808", "NA", "True", '"', '""', "#", "%", "1,5", "3e38", "1e39"]
_VALUES += ["2024-05-31", "2024-5-1T24:00:00", "2024-05-31T12:30:00+02:00", "--1", "²", "0b1", "infinity", "é", "1e"]
_VALUES += [" 7 ", "\t8", "", "# c", "1 2", "x" * 300, "1\u00a0", "a\nb", "\ufeff1", "5\x0b", "1.0000000596046448"]
_VALUES += ["16777217", "null"]
_NO_ROWS = ["", " ", "\t", "# c", "% d", "#", "#a,b,c", '# it\'s "quoted"', "%,x,3", "\ufeff"]
_DATES = ["2020-09-13 12:26:{:02}", "2020-09-13T12:26:{:02}Z", "2020-09-13T14:26:{:02}+02:00"]


class Texts(FuzzTarget):
    """Text tables of events, read by ``ingest`` and by the slow reader: rows, bad rows, comments, rejects file."""

    name: ClassVar[str] = "texts"
    inputs: ClassVar[int] = 160_000

    def setup(self, cache: Path) -> None:
        SharedDatabase().install()

    def run(self, rng: random.Random, folder: Path) -> str:
        case = _Case(rng)
        path = case.write(folder)
        expected, reason = case.expected()
        usual, text_table.BLOCK_BYTES = text_table.BLOCK_BYTES, rng.choice([24, 64, 256, 1 << 20])  # often within a row
        try:
            graph = case.ingest(path)
        except StrobeError as error:
            if expected is None or (expected.bad and not case.skip) or not expected.good:
                _compare_refusal(error, expected, case)
                return "refused"
            if "snapshots" in str(error) and "would make" in str(error):
                return "refused"
            raise SilentDifferenceError(f"refused ({error}), accepted by the slow reader\n{case}") from error
        finally:
            text_table.BLOCK_BYTES = usual
        if expected is None:
            raise SilentDifferenceError(f"accepted, refused by the slow reader ({reason})\n{case}")
        _compare(graph, expected, case, folder)
        return "accepted with bad rows" if expected.bad else "accepted"


class _Case:
    """One file and the options it is read with."""

    def __init__(self, rng: random.Random) -> None:
        self.header = rng.random() < 0.5
        self.real_delimiter = rng.choice([",", ",", ",", "\t", ";", "|", " ", ":"])
        self.delimiter = None if self.real_delimiter != ":" and rng.random() < 0.7 else self.real_delimiter
        if rng.random() < 0.02:
            self.delimiter = rng.choice([",", " ", "\t", "1", "#", "%", "\x01", "e"])
        self.encoding = rng.choice(["utf-8"] * 8 + ["latin-1", "cp1252", "gbk", "utf-8-sig", "UTF8", "ascii"])
        self.suffix = (
            rng.choice([".csv"] * 6 + [".txt", ".csv.gz"])
            if self.real_delimiter != "\t"
            else rng.choice([".tsv", ".txt"])
        )
        self.skip = rng.random() < 0.8
        self.weighted = rng.random() < 0.5
        self.names = rng.random() < 0.4
        self.unit_made = rng.choice(["number"] * 4 + ["iso", "s", "ms"])
        self.ids = rng.choice([None, None, "string" if self.names else "integer", "string"])
        self.unit = rng.choice([None, self.unit_made, self.unit_made])
        self.by_name = self.header and rng.random() < 0.8
        self.length = rng.choice([None, None, 1, 5, 0.5])
        self.data = self._mutated(
            rng, self._table(rng).encode("utf-8" if "ascii" in self.encoding else self.encoding, "replace")
        )
        if rng.random() < 0.1:
            self.data = b"\xef\xbb\xbf" + self.data

    def write(self, folder: Path) -> Path:
        self.rejects = folder / "rejects.csv"
        path = folder / f"events{self.suffix}"
        path.write_bytes(gzip.compress(self.data, 1) if self.suffix.endswith(".gz") else self.data)
        return path

    def columns(self) -> dict[str, Any]:
        chosen: dict[str, Any] = {name: name if self.by_name else k for k, name in enumerate(COLUMNS)}
        if not self.weighted:
            del chosen["weight"]
        return chosen

    def ingest(self, path: Path) -> DynamicGraph:
        options: dict[str, Any] = self.columns() | {"ids": self.ids, "time_unit": self.unit, "repeated": "keep"}
        clock = Into(1) if self.length is None else Every(self.length)
        text = TextOptions(self.delimiter, self.header, self.encoding)
        skip: dict[str, Any] = {"skip_bad_rows": True, "rejects": self.rejects} if self.skip else {}
        return ingest(path, clock=clock, text=text, max_snapshots=2000, **options, **skip)

    def expected(self) -> tuple[slow_reader.Events | None, str]:
        try:
            read = slow_reader.read(
                self.data,
                delimiter=self.delimiter,
                header=self.header,
                encoding=self.encoding,
                is_tsv=self.suffix == ".tsv",
            )
            columns = {"weight": None} | self.columns()
            self.comments = read.comments
            return slow_reader.events(read, **columns, ids=self.ids, unit=self.unit), ""
        except slow_reader.RefusedError as error:
            return None, str(error)

    def __str__(self) -> str:
        shown = {name: value for name, value in vars(self).items() if name not in ("data", "rejects")}
        return f"{shown}\n{self.data[:1500]!r}"

    def _table(self, rng: random.Random) -> str:
        end = rng.choice(["\n", "\n", "\r\n"])
        lines = [f"{rng.choice('#%')} {'note ' * rng.randrange(4)}" for _ in range(rng.choice([0, 0, 1, 2]))]
        extra = rng.choice([0, 0, 0, 1, 3])
        if self.header:
            lines.append(self.real_delimiter.join([*COLUMNS[: 3 + self.weighted], *(f"x{k}" for k in range(extra))]))
        quoting = rng.choice([0.0, 0.0, 0.1, 1.0])
        for _ in range(rng.choice([1, 3, 6, 12, 30])):
            fields = [self._id(rng), self._id(rng), self._time(rng), *([self._weight(rng)] if self.weighted else [])]
            fields += [rng.choice(["", "x", "y z" if self.real_delimiter != " " else "y", "é"]) for _ in range(extra)]
            if rng.random() < 0.05:
                fields[rng.randrange(len(fields))] = rng.choice(_VALUES)
            lines.append(self.real_delimiter.join(self._quoted(rng, text, quoting) for text in fields))
            if rng.random() < 0.06:
                lines.append(
                    rng.choice(["", " ", "\t", "# c", "% d", "#", "#a,b,c", '# it\'s "quoted"', "%,x,3", "\ufeff"])
                )
        return end.join(lines) + (end if rng.random() < 0.8 else "")

    def _quoted(self, rng: random.Random, text: str, quoting: float) -> str:
        if self.real_delimiter != " " and (
            rng.random() < quoting or any(c in text for c in (self.real_delimiter, "\n"))
        ):
            return '"' + text.replace('"', '""') + '"'
        return text

    def _id(self, rng: random.Random) -> str:
        if not self.names:
            return str(rng.randrange(8))
        return rng.choice(
            ["ann", "bob", "#c", "%d", "é", "a b" if self.real_delimiter != " " else "ab", "e,f", "7", "0"]
        )

    def _time(self, rng: random.Random) -> str:
        if self.unit_made == "number":
            return rng.choice([str(rng.randrange(60)), f"{rng.randrange(600) / 10}", f"{rng.uniform(-9, 99):.3f}"])
        seconds = 1_600_000_000 + rng.randrange(200)
        if self.unit_made == "iso":
            return rng.choice(
                ["2020-09-13 12:26:{:02}", "2020-09-13T12:26:{:02}Z", "2020-09-13T14:26:{:02}+02:00"]
            ).format(seconds % 60)
        return str(seconds * (1000 if self.unit_made == "ms" else 1))

    def _weight(self, rng: random.Random) -> str:
        return rng.choice([str(rng.randrange(9)), f"{rng.uniform(-2, 2):.4g}", "1.5e-3", "0.1", "-2"])

    def _mutated(self, rng: random.Random, data: bytes) -> bytes:
        for _ in range(rng.choice([0, 0, 1, 1, 2, 4])):
            at = rng.randrange(len(data) + 1)
            match rng.randrange(9):
                case 0 | 1 | 2:
                    data = data[:at] + rng.choice(_ODD).encode() + data[at:]
                case 3:
                    data = data[:at] + data[at + rng.choice([1, 1, 5]) :]
                case 4:
                    data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
                case 5:
                    starts = [k + 1 for k, byte in enumerate(data) if byte == 10] or [0]
                    start = rng.choice(starts)
                    data = (
                        data[:start] + rng.choice(['"', "#", "%", " ", ",", "\r", '# "', '"""']).encode() + data[start:]
                    )
                case 6:
                    data = data[: max(at, len(data) // 2)]
                case 7:
                    lines = data.split(b"\n")
                    rng.shuffle(lines)
                    data = b"\n".join(lines)
                case _:
                    data = data.replace(b"\n", rng.choice([b"\n\n", b"\r", b"\r\n", b"\r\r\n"]), rng.choice([1, 3]))
        return data


def _compare_refusal(error: StrobeError, expected: slow_reader.Events | None, case: _Case) -> None:
    if isinstance(error, BadRowsError) and (
        expected is None or not str(error).startswith(f"{len(expected.bad):,} bad")
    ):
        count = "a refused file" if expected is None else len(expected.bad)
        raise SilentDifferenceError(f"{str(error)[:300]}\nslow reader: {count} bad\n{case}")
    if case.skip and expected is not None and not expected.good and expected.bad:
        _compare_rejects(expected, case)


def _compare(graph: DynamicGraph, expected: slow_reader.Events, case: _Case, folder: Path) -> None:
    found = {name: graph.info[name] for name in ("rows", "bad_rows", "comment_lines")}
    wanted = {"rows": len(expected.good), "bad_rows": len(expected.bad), "comment_lines": case.comments}
    if found != wanted:
        raise SilentDifferenceError(f"{found}, slow reader: {wanted}\n{case}")
    if not case.skip and expected.bad:
        raise SilentDifferenceError(f"bad rows were accepted\n{case}")
    if case.skip:
        _compare_rejects(expected, case)
    edges = Counter[tuple[Any, ...]]()
    for t, snapshot in enumerate(graph):
        src, dst, weight = snapshot.edges()
        assert graph.names is not None
        for k in range(src.size):
            pair = graph.names[int(src[k])], graph.names[int(dst[k])]
            edges[(t, *pair, None if weight is None else float(weight[k]))] += 1
    low = min(time for _, _, time, _ in expected.good)
    first = 0 if case.length is None else math.floor(low / case.length)
    reference = Counter(
        (0 if case.length is None else math.floor(time / case.length) - first, src, dst, weight)
        for src, dst, time, weight in expected.good
    )
    if edges != reference:
        raise SilentDifferenceError(f"{edges - reference} instead of {reference - edges}\n{case}")


def _compare_rejects(expected: slow_reader.Events, case: _Case) -> None:
    if not case.rejects.exists():
        listed = []
    else:
        with case.rejects.open(newline="", encoding="utf-8") as file:
            listed = [(int(row["place"]), row["column"]) for row in csv.DictReader(file)]
    if listed != expected.bad:
        raise SilentDifferenceError(f"rejects file {listed}, slow reader: {expected.bad}\n{case}")
