"""A slow reader of text tables, one character at a time: the oracle that Strobe's reader is compared with.

It follows the rules of docs/data.md ("Text files") and shares no code with Strobe.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.fuzzing import slow_values

LINES_OF_A_ROW = 1000


class RefusedError(Exception):
    """The whole file is refused."""


@dataclass
class Read:
    """What a file holds: rows as (line, fields), bad lines, and how many comments."""

    columns: list[str]
    rows: list[tuple[int, list[str]]] = field(default_factory=list)
    bad: list[int] = field(default_factory=list)
    comments: int = 0


def read(data: bytes, *, delimiter: str | None, header: bool, encoding: str, is_tsv: bool) -> Read:
    """Read a whole file."""
    lines = _lines(data, encoding)
    at = 0
    comments = 0
    while at < len(lines) and (_is_blank(lines[at]) or lines[at][:1] in ("#", "%")):
        comments += not _is_blank(lines[at])
        at += 1
    if at == len(lines):
        raise RefusedError("no row")
    sniffed = lines[at : at + 50]
    if delimiter is None:
        delimiter = "\t" if is_tsv else _guess([line for line in sniffed if not _is_blank(line)])
    if header:
        names = _header(lines[at], delimiter)
        found = Read(names, comments=comments)
        at += 1
    else:
        found = Read([str(k) for k in range(_first_width(sniffed, delimiter))], comments=comments)
    width = len(found.columns)
    while at < len(lines):
        line = lines[at]
        if _is_blank(line):
            at += 1
            continue
        taken, fields = _record(lines[at : at + LINES_OF_A_ROW], delimiter)
        if fields is not None and taken > 1 and len(fields) != width:
            fields = None
        if fields is not None and len(fields) == width:
            undecodable = any("\udc80" <= c <= "\udcff" for text in lines[at : at + taken] for c in text)
            if undecodable:
                found.bad.append(at + 1)
            else:
                found.rows.append((at + 1, fields))
            at += taken
        else:
            if line[0] in "#%":
                found.comments += 1
            else:
                found.bad.append(at + 1)
            at += 1
    return found


def _lines(data: bytes, encoding: str) -> list[str]:
    """Lines with their ends."""
    pieces = data.split(b"\n")
    raw = [piece + b"\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])
    lines = [line.decode("utf-8" if encoding == "utf-8-sig" else encoding, errors="surrogateescape") for line in raw]
    if lines and lines[0].startswith("\ufeff"):
        lines[0] = lines[0][1:]
    return lines


def _content(line: str) -> str:
    if line.endswith("\n"):
        line = line[:-1]
    return line[:-1] if line.endswith("\r") else line


def _is_blank(line: str) -> bool:
    return all(c in " \t" for c in _content(line))


def _record(lines: list[str], delimiter: str) -> tuple[int, list[str] | None]:
    """The row that begins in the first line: how many lines it takes, and its fields (None: it cannot be read)."""
    if delimiter == " ":
        content = _content(lines[0])
        return 1, None if "\r" in content else [word for word in content.replace("\t", " ").split(" ") if word]
    fields: list[str] = []
    field, state = "", "start"
    for taken, line in enumerate(lines, 1):
        content = _content(line)
        for c in content:
            if state == "start" and c == '"':
                state = "quoted"
            elif state == "quoted":
                if c == '"':
                    state = "after"
                else:
                    field += c
            elif state == "after" and c == '"':
                field += '"'
                state = "quoted"
            elif c == delimiter:
                fields.append(field)
                field, state = "", "start"
            elif state == "after" or c == "\r":
                return 1, None
            else:
                field += c
                state = "plain"
        if state != "quoted":
            return taken, [*fields, field]
        field += line[len(content) :]
    return 1, None


def _width(line: str, delimiter: str) -> int:
    _, fields = _record([line], delimiter)
    return 0 if fields is None else len(fields)


def _guess(lines: list[str]) -> str:
    best, most = " ", 1
    for delimiter in "\t,;|":
        widths = [_width(line, delimiter) for line in lines]
        split = [width for width in widths if width > 0]
        if split and split[0] > most and widths.count(split[0]) * 2 >= len(widths):
            best, most = delimiter, split[0]
    return best


def _header(line: str, delimiter: str) -> list[str]:
    _, fields = _record([line], delimiter)
    if fields is None or any("\udc80" <= c <= "\udcff" for c in line):
        raise RefusedError("header")
    names = [name.strip() or f"column {k}" for k, name in enumerate(fields)]
    if len(set(names)) < len(names):
        raise RefusedError("a name twice")
    return names


def _first_width(lines: list[str], delimiter: str) -> int:
    at = 0
    while at < len(lines):
        if not _is_blank(lines[at]):
            taken, fields = _record(lines[at:], delimiter)
            undecodable = any("\udc80" <= c <= "\udcff" for text in lines[at : at + taken] for c in text)
            if fields is not None:
                if not undecodable:
                    return len(fields)
                at += taken - 1
        at += 1
    raise RefusedError("no line can be split")


@dataclass
class Events:
    """Good events as (source, destination, time, weight), and bad rows as (line, column)."""

    good: list[tuple[int | str, int | str, float, float | None]]
    bad: list[tuple[int, str]]
    ids: str
    unit: str


def events(read: Read, src: str | int, dst: str | int, time: str | int, weight: str | int | None,
           ids: str | None, unit: str | None) -> Events:  # fmt: skip
    """The events of a file that has been read."""
    wanted = {"src": src, "dst": dst, "time": time} | ({} if weight is None else {"weight": weight})
    at: dict[str, int] = {}
    for role, column in wanted.items():
        if isinstance(column, str) and column not in read.columns:
            raise RefusedError("no such column")
        at[role] = read.columns.index(column) if isinstance(column, str) else column
        if at[role] >= len(read.columns) or (len(read.columns) == 1 and column not in read.columns):
            raise RefusedError("no such column")
    order = sorted([*read.bad, *(line for line, _ in read.rows)])
    first = set(order[:1000])
    sampled = [fields for line, fields in read.rows if line in first]
    samples = [fields[at[role]] for role in ("src", "dst") for fields in sampled]
    found = Events([], [(line, "") for line in read.bad], ids or slow_values.guessed_ids(samples), unit or "")
    found.unit = unit or slow_values.guessed_unit([fields[at["time"]] for fields in sampled])
    for line, fields in read.rows:
        values = {
            "src": slow_values.node_id(fields[at["src"]], found.ids),
            "dst": slow_values.node_id(fields[at["dst"]], found.ids),
            "time": slow_values.time(fields[at["time"]], found.unit),
        }
        if weight is not None:
            values["weight"] = slow_values.weight(fields[at["weight"]])
        wrong = [role for role, value in values.items() if value is None]
        if wrong:
            column = wanted[wrong[0]]
            found.bad.append((line, column if isinstance(column, str) else f"#{column}"))
        else:
            found.good.append((values["src"], values["dst"], values["time"], values.get("weight")))  # type: ignore[arg-type]
    found.bad.sort()
    return found
