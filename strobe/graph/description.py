"""What a directory says about the graph in it: graph.json, with a checksum of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from strobe.errors import FormatError, InputError
from strobe.graph.fields import FieldError, check_growing, check_saved
from strobe.io.sealed import SUM, checksum_of

META = "graph.json"
SAVED, GROWING = "strobe-graph", "strobe-growing-graph"
VERSION = 1


def sealed(described: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """A description as it will be read (JSON has no tuples and no integer keys), with format and checksum."""
    try:
        meta: dict[str, Any] = json.loads(json.dumps({"format": kind, "version": VERSION, **described}))
    except (TypeError, ValueError) as error:
        raise InputError(f"the graph's info cannot be kept as JSON: {error}") from error
    try:
        _check(meta, kind)
    except FieldError as error:
        raise InputError(f"the graph cannot be kept: {error}") from error
    return {**meta, SUM: checksum_of(meta)}


def read_description(folder: Path, kind: str = SAVED) -> dict[str, Any]:
    """The description of the graph in a folder; one that is damaged, or of another kind, is refused."""
    if not folder.exists():
        aside = beside(folder, "replaced")
        hint = f"; one that was being replaced is at {aside}" if aside.exists() else ""
        raise FormatError(f"there is no graph at {folder}{hint}")
    if not (folder / META).is_file():
        raise FormatError(
            f"{folder} is not a saved graph: it has no {META}. "
            "To make a graph from a table use 'strobe ingest', from a known data set 'strobe data get'."
        )
    meta = _read(folder / META)
    if meta["format"] != kind:
        raise FormatError(f"{folder} holds a {meta['format']!r}, not a {kind!r}")
    if meta.get("version") != VERSION:
        raise FormatError(f"{folder} has format version {meta.get('version')}, this program reads version {VERSION}")
    if meta.get(SUM) != checksum_of(meta):
        raise FormatError(f"{folder / META} is damaged or was edited: its checksum does not match")
    with invalid(folder):
        _check(meta, kind)
    return meta


@contextmanager
def invalid(folder: Path) -> Iterator[None]:
    """A description that says what cannot be is refused with the place it is at."""
    try:
        yield
    except FieldError as error:
        raise FormatError(f"{folder / META} describes no graph: {error}") from error


def is_growing(folder: Path) -> bool:
    """Whether a folder holds a graph that grows; a description that cannot be read says no."""
    try:
        return (folder / META).is_file() and bool(_read(folder / META)["format"] == GROWING)
    except FormatError:
        return False


def beside(target: Path, purpose: str) -> Path:
    """A hidden neighbour of the target, so that renaming never crosses file systems."""
    return target.parent / f".{target.name}.{purpose}"


def _check(meta: Mapping[str, Any], kind: str) -> None:
    return check_saved(meta) if kind == SAVED else check_growing(meta)


def _read(path: Path) -> dict[str, Any]:
    try:
        meta: dict[str, Any] = json.loads(path.read_text())
        meta["format"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror or error}") from error
    return meta
