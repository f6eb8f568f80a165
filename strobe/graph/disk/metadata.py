"""Metadata of a graph on disk (graph.json): fields, array dtypes and shapes, and their validation."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from strobe.errors import FormatError, InputError
from strobe.io.checksum import CHECKSUM_KEY, json_checksum
from strobe.io.limits import process_memory_bytes
from strobe.ops.sparse.csr import MAX_NODES

_INDEX_DTYPES = (np.int32, np.int64)
_ANY_DTYPE = (
    *(np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64),
    *(np.float16, np.float32, np.float64, np.longdouble),
)
NAME_ARRAYS: dict[str, tuple[type[np.generic], ...]] = {
    "name_int": (np.int64,),
    "name_ptr": (np.int64,),
    "name_text": (np.uint8,),
    "name_order": (np.int64,),
}
NEW_PREFIX = "new_"
"""Prefix of the arrays of names that a part adds."""
ARRAY_TYPES: dict[str, tuple[type[np.generic], ...]] = {
    "cell_ptr": (np.int64,),
    "arc_ptr": (np.int64,),
    "edge_count": (np.int64,),
    "structure": (np.int32,),
    "node": _INDEX_DTYPES,
    "row_ptr": _INDEX_DTYPES,
    "col": _INDEX_DTYPES,
    "weight": (np.float32, np.float64),
    "x": _ANY_DTYPE,
    "y": _ANY_DTYPE,
    **NAME_ARRAYS,
    **{NEW_PREFIX + name: types for name, types in NAME_ARRAYS.items() if name != "name_order"},
}
"""Every array that a graph may have, with its allowed dtypes."""

MAX_SIGNATURE_WIDTH = 1 << 16
"""Largest width of a signature."""
_MAX_BYTES = 1 << 62
_MAX_DEPTH = 16


class FieldError(ValueError):
    """A metadata field has an impossible value; the message does not name the file."""


def check_saved_metadata(meta: Mapping[str, Any]) -> None:
    """Raise FieldError if the metadata of a saved graph is inconsistent."""
    num_nodes = _integer(meta, "num_nodes", MAX_NODES)
    _boolean(meta, "directed")
    num_snapshots = len(_times(meta))
    _mapping(meta, "info")
    arrays = _mapping(meta, "arrays")
    for name, entry in arrays.items():
        _check_array(name, entry)
    _check_shapes(arrays, num_nodes, num_snapshots)
    for prefix in ("", NEW_PREFIX):
        _check_names(arrays, prefix, num_nodes)
    for what, name in (("features", "x"), ("labels", "y")):
        if what not in meta:
            raise FieldError(f"{what} are missing")
        if (name in arrays) != (meta[what] is not None and _check_recipe(what, meta[what])):
            raise FieldError(f"{what} and the array {name} do not belong together: there is only one of them")


def check_growing_metadata(meta: Mapping[str, Any]) -> None:
    """Raise FieldError if the metadata of a growing graph is inconsistent."""
    _boolean(meta, "directed")
    _boolean(meta, "weighted")
    shapes = _mapping(meta, "shapes")
    _mapping(meta, "info")
    for what, name in (("features", "x"), ("labels", "y")):
        if what not in meta or name not in shapes:
            raise FieldError(f"{what}, or their shape, are missing")
        holds = meta[what] is not None and _check_recipe(what, meta[what], ("per_cell",))
        if holds != (shapes[name] is not None):
            raise FieldError(f"{what} and the shape of {name} do not belong together: there is only one of them")
        if holds:
            _check_shape(f"the shape of {name}", shapes[name], most=1)


def check_part_metadata(meta: Mapping[str, Any]) -> None:
    """Raise FieldError if a saved graph cannot be one snapshot of a growing graph."""
    if len(meta["times"]) != 1:
        raise FieldError(f"a part has one snapshot, not {len(meta['times'])}")
    _integer(meta["info"], "edges", _MAX_BYTES)
    _mapping(meta["info"], "info")


def _check_array(name: str, entry: Any) -> None:
    if name not in ARRAY_TYPES:
        raise FieldError(f"a graph has no array named {_short_repr(name)}")
    if not isinstance(entry, dict):
        raise FieldError(f"array {name} is described by {_short_repr(entry)}")
    allowed = [np.dtype(each).str for each in ARRAY_TYPES[name]]
    if not isinstance(entry.get("dtype"), str) or entry["dtype"] not in allowed:
        raise FieldError(f"array {name} has type {_short_repr(entry.get('dtype'))}, not one of {', '.join(allowed)}")
    if not isinstance(entry.get("crc32"), str):
        raise FieldError(f"array {name} has no checksum")
    _check_shape(f"the shape of array {name}", entry.get("shape"), most=2)
    if math.prod(entry["shape"]) * np.dtype(entry["dtype"]).itemsize > _MAX_BYTES:
        raise FieldError(f"array {name} of shape {entry['shape']} fits no disk")
    dimensions = {"x": (2,), "y": (1, 2)}.get(name, (1,))
    if len(entry["shape"]) not in dimensions:
        raise FieldError(f"array {name} has shape {entry['shape']}")


def _check_shape(what: str, shape: Any, *, most: int) -> None:
    wrong = not isinstance(shape, list) or len(shape) > most
    if wrong or not all(type(size) is int and 0 <= size <= _MAX_BYTES for size in shape):
        raise FieldError(f"{what} is {_short_repr(shape)}")


def _check_shapes(arrays: Mapping[str, Any], num_nodes: int, num_snapshots: int) -> None:
    """Check that lengths of the snapshot arrays agree."""
    for name in ("cell_ptr", "arc_ptr", "edge_count", "row_ptr", "col"):
        if name not in arrays:
            raise FieldError(f"array {name} is missing")
    length = {name: entry["shape"][0] for name, entry in arrays.items()}
    count = _num_structures(length, num_nodes) if "structure" in arrays else num_snapshots
    if count > num_snapshots:
        raise FieldError(f"there are {count:,} structures for {num_snapshots:,} snapshots")
    num_cells = length["node"] if "node" in arrays else num_nodes * count
    expected = {
        "cell_ptr": num_snapshots + 1,
        "arc_ptr": num_snapshots + 1,
        "edge_count": num_snapshots,
        "structure": num_snapshots,
        "row_ptr": num_cells + count,
        "weight": length["col"],
    }
    for name, wanted in expected.items():
        if length.get(name, wanted) != wanted:
            raise FieldError(f"array {name} has {length[name]:,} entries where {wanted:,} belong")


def _num_structures(length: Mapping[str, int], num_nodes: int) -> int:
    """Return the number of structures, each with one row pointer more than it has nodes."""
    return max(0, length["row_ptr"] - length["node"] if "node" in length else length["row_ptr"] // (num_nodes + 1))


def _check_names(arrays: Mapping[str, Any], prefix: str, num_nodes: int) -> None:
    stored = {name for name in NAME_ARRAYS if prefix + name in arrays}
    if stored - {"name_order"} not in (set(), {"name_int"}, {"name_ptr", "name_text"}) or stored == {"name_order"}:
        raise FieldError(f"names of nodes cannot be made of {', '.join(sorted(prefix + name for name in stored))}")
    length = {name: arrays[prefix + name]["shape"][0] for name in stored}
    number = length.get("name_int", length.get("name_ptr", 1) - 1)
    if number < 0 or number > num_nodes or length.get("name_order", number) != number:
        raise FieldError("names of nodes have lengths that do not agree")
    if stored and not prefix and number != num_nodes:
        raise FieldError(f"there are {number:,} names for {num_nodes:,} nodes")


def _times(meta: Mapping[str, Any]) -> list[Any]:
    times = meta.get("times")
    if not isinstance(times, list) or not all(type(time) in (int, str) for time in times):
        raise FieldError("times are not a list of integers or strings")
    return times


def _check_recipe(
    what: str, recipe: Any, stored_kinds: tuple[str, ...] = ("static", "per_cell"), depth: int = 0
) -> bool:
    """Check a recipe; return whether its values come from an array, as ``stored_kinds`` allow."""
    if not isinstance(recipe, dict) or depth > _MAX_DEPTH:
        raise FieldError(f"{what} are described by {_short_repr(recipe)}, at depth {depth}")
    kind = recipe.get("kind")
    if kind in stored_kinds:
        return True
    if kind == "degrees":
        _boolean(recipe, "log")
        return False
    if kind == "random_signature":
        _integer(recipe, "width", MAX_SIGNATURE_WIDTH)
        _integer(recipe, "seed", (1 << 64) - 1)
        return False
    if kind == "concatenated" and isinstance(recipe.get("parts"), list):
        holding = [part for part in recipe["parts"] if _check_recipe(what, part, stored_kinds, depth + 1)]
        return bool(holding)
    if kind == "standardized":
        for name in ("mean", "std"):
            numbers = recipe.get(name)
            if not isinstance(numbers, list) or not all(_is_number(number) for number in numbers):
                raise FieldError(f"{name} of {what} is {_short_repr(numbers)}, not a list of numbers")
        return _check_recipe(what, recipe.get("inner"), stored_kinds, depth + 1)
    raise FieldError(f"{what} are of an unknown kind, {_short_repr(kind)}: the graph may be one of a newer version")


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < 1 << 63)


def _integer(meta: Mapping[str, Any], name: str, most: int) -> int:
    value = meta.get(name)
    if type(value) is not int or not 0 <= value <= most:
        raise FieldError(f"{name} is {_short_repr(value)}, not an integer from 0 to {most:,}")
    return value


def _boolean(meta: Mapping[str, Any], name: str) -> None:
    if not isinstance(meta.get(name), bool):
        raise FieldError(f"{name} is {_short_repr(meta.get(name))}, not true or false")


def _mapping(meta: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = meta.get(name)
    if not isinstance(value, dict):
        raise FieldError(f"{name} is {_short_repr(value)}, not an object with names and values")
    return value


def _short_repr(value: Any) -> str:
    """Return a value's repr, shortened for a message."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


METADATA_FILE = "graph.json"
SAVED_FORMAT, GROWING_FORMAT = "strobe-graph", "strobe-growing-graph"
VERSION = 3


def make_metadata(fields: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return metadata as JSON will store it (no tuples, no integer keys), with format and checksum."""
    try:
        meta: dict[str, Any] = json.loads(json.dumps({"format": kind, "version": VERSION, **fields}))
    except (TypeError, ValueError) as error:
        raise InputError(f"the graph's info cannot be kept as JSON: {error}") from error
    try:
        _check_metadata(meta, kind)
    except FieldError as error:
        raise InputError(f"the graph cannot be kept: {error}") from error
    return {**meta, CHECKSUM_KEY: json_checksum(meta)}


def read_metadata(folder: Path, kind: str = SAVED_FORMAT) -> dict[str, Any]:
    """Read the metadata of the graph in a folder; refuse damaged metadata and other formats."""
    if not folder.exists():
        aside = hidden_sibling(folder, "replaced")
        hint = f"; one that was being replaced is at {aside}" if aside.exists() else ""
        raise FormatError(f"there is no graph at {folder}{hint}")
    if not (folder / METADATA_FILE).is_file():
        raise FormatError(
            f"{folder} is not a saved graph: it has no {METADATA_FILE}. "
            "To make a graph from a table use 'strobe ingest', from a known data set 'strobe data get'."
        )
    meta = _read_json(folder / METADATA_FILE)
    if meta["format"] != kind:
        raise FormatError(f"{folder} holds a {meta['format']!r}, not a {kind!r}")
    if meta.get("version") != VERSION:
        raise FormatError(
            f"{folder} has format version {meta.get('version')}, this program reads version {VERSION}: "
            "make the graph again from its source, as you did the first time"
        )
    if meta.get(CHECKSUM_KEY) != json_checksum(meta):
        raise FormatError(f"{folder / METADATA_FILE} is damaged or was edited: its checksum does not match")
    with field_errors_as_format_errors(folder):
        _check_metadata(meta, kind)
    return meta


def metadata_digest(meta: Mapping[str, Any]) -> str:
    """Return a SHA-256 of a graph's metadata, which have the checksum of every array."""
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()


@contextmanager
def field_errors_as_format_errors(folder: Path) -> Iterator[None]:
    """Add the folder to a FieldError."""
    try:
        yield
    except FieldError as error:
        raise FormatError(f"{folder / METADATA_FILE} describes no graph: {error}") from error


def is_growing(folder: Path) -> bool:
    """Return whether a folder has a growing graph; False if its metadata cannot be read."""
    try:
        return (folder / METADATA_FILE).is_file() and bool(
            _read_json(folder / METADATA_FILE)["format"] == GROWING_FORMAT
        )
    except FormatError:
        return False


def hidden_sibling(target: Path, purpose: str) -> Path:
    """Return a hidden sibling of the target, so that renaming never crosses file systems."""
    return target.parent / f".{target.name}.{purpose}"


def _check_metadata(meta: Mapping[str, Any], kind: str) -> None:
    return check_saved_metadata(meta) if kind == SAVED_FORMAT else check_growing_metadata(meta)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        meta: dict[str, Any] = json.loads(path.read_text())
        meta["format"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror or error}") from error
    return meta


_ALWAYS_ALLOWED_NODES = 10**8
"""Number of nodes that fits the memory of any machine."""
_SPARSE_IDS_PER_CELL = 16  # ids per cell beyond which most ids are never used
_BYTES_PER_ID = 32  # of the tables per id in training and statistics


def check_id_space(where: object, num_nodes: int, num_cells: int, memory_bytes: int | None = None) -> None:
    """Raise FormatError if nearly all ids of a graph are unused and tables over them would fill the memory.

    A file of a few hundred bytes can claim three billion nodes; a graph with the cells to use its ids is larger on disk
    than their tables in memory.
    """
    if num_nodes <= max(_ALWAYS_ALLOWED_NODES, _SPARSE_IDS_PER_CELL * num_cells):
        return
    room = process_memory_bytes() if memory_bytes is None else memory_bytes
    if num_nodes * _BYTES_PER_ID > room:
        raise FormatError(
            f"{where} has {num_nodes:,} nodes but only {num_cells:,} cells: tables over all nodes would take "
            f"{num_nodes * _BYTES_PER_ID >> 30:,} GiB, and {room >> 30:,} GiB is what this process may have. "
            "Number the nodes that are used from 0 on, and build the graph again."
        )
