"""What a description may say: the types of its fields, the arrays it may name, and shapes that agree."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from strobe.ops.csr import MAX_NODES

_INDEX = (np.int32, np.int64)
_ANY = (
    *(np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64),
    *(np.float16, np.float32, np.float64, np.longdouble),
)
NAMES: dict[str, tuple[type[np.generic], ...]] = {
    "name_int": (np.int64,),
    "name_ptr": (np.int64,),
    "name_text": (np.uint8,),
    "name_order": (np.int64,),
}
NEW = "new_"
"""What the names of nodes that a part brings are called: as those of a whole graph, with this before it."""
TYPES: dict[str, tuple[type[np.generic], ...]] = {
    "cell_ptr": (np.int64,),
    "arc_ptr": (np.int64,),
    "edge_count": (np.int64,),
    "node": _INDEX,
    "row_ptr": _INDEX,
    "col": _INDEX,
    "weight": (np.float32, np.float64),
    "x": _ANY,
    "y": _ANY,
    **NAMES,
    **{NEW + name: types for name, types in NAMES.items() if name != "name_order"},
}
"""Every array a graph may have, and the types it may have."""

MAX_WIDTH = 1 << 16
"""The most numbers of a signature."""
_MAX_BYTES = 1 << 62
_MAX_DEPTH = 16


class FieldError(ValueError):
    """A description says something that cannot be; the text says what, not where."""


def check_saved(meta: Mapping[str, Any]) -> None:
    """Raises FieldError where the description of a saved graph cannot be true of any."""
    num_nodes = _integer(meta, "num_nodes", MAX_NODES)
    _boolean(meta, "directed")
    num_snapshots = len(_times(meta))
    _mapping(meta, "info")
    arrays = _mapping(meta, "arrays")
    for name, entry in arrays.items():
        _check_array(name, entry)
    _check_shapes(arrays, num_nodes, num_snapshots)
    for prefix in ("", NEW):
        _check_names(arrays, prefix, num_nodes)
    for what, name in (("features", "x"), ("labels", "y")):
        if what not in meta:
            raise FieldError(f"{what} are missing")
        if (name in arrays) != (meta[what] is not None and _check_recipe(what, meta[what])):
            raise FieldError(f"{what} and the array {name} do not belong together: there is only one of them")


def check_growing(meta: Mapping[str, Any]) -> None:
    """Raises FieldError where the description of a graph that grows cannot be true of any."""
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


def check_part(meta: Mapping[str, Any]) -> None:
    """Raises FieldError where a saved graph cannot be one snapshot of a graph that grows."""
    if len(meta["times"]) != 1:
        raise FieldError(f"a part has one snapshot, not {len(meta['times'])}")
    _integer(meta["info"], "edges", _MAX_BYTES)
    _mapping(meta["info"], "info")


def _check_array(name: str, entry: Any) -> None:
    if name not in TYPES:
        raise FieldError(f"a graph has no array named {_shown(name)}")
    if not isinstance(entry, dict):
        raise FieldError(f"array {name} is described by {_shown(entry)}")
    allowed = [np.dtype(each).str for each in TYPES[name]]
    if not isinstance(entry.get("dtype"), str) or entry["dtype"] not in allowed:
        raise FieldError(f"array {name} has type {_shown(entry.get('dtype'))}, not one of {', '.join(allowed)}")
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
        raise FieldError(f"{what} is {_shown(shape)}")


def _check_shapes(arrays: Mapping[str, Any], num_nodes: int, num_snapshots: int) -> None:
    """Lengths of the arrays that hold snapshots: each is known from the others."""
    for name in ("cell_ptr", "arc_ptr", "edge_count", "row_ptr", "col"):
        if name not in arrays:
            raise FieldError(f"array {name} is missing")
    length = {name: entry["shape"][0] for name, entry in arrays.items()}
    num_cells = length["node"] if "node" in arrays else num_nodes * num_snapshots
    expected = {
        "cell_ptr": num_snapshots + 1,
        "arc_ptr": num_snapshots + 1,
        "edge_count": num_snapshots,
        "row_ptr": num_cells + num_snapshots,
        "weight": length["col"],
    }
    for name, wanted in expected.items():
        if length.get(name, wanted) != wanted:
            raise FieldError(f"array {name} has {length[name]:,} entries where {wanted:,} belong")


def _check_names(arrays: Mapping[str, Any], prefix: str, num_nodes: int) -> None:
    found = {name for name in NAMES if prefix + name in arrays}
    if found - {"name_order"} not in (set(), {"name_int"}, {"name_ptr", "name_text"}) or found == {"name_order"}:
        raise FieldError(f"names of nodes cannot be made of {', '.join(sorted(prefix + name for name in found))}")
    length = {name: arrays[prefix + name]["shape"][0] for name in found}
    number = length.get("name_int", length.get("name_ptr", 1) - 1)
    if number < 0 or number > num_nodes or length.get("name_order", number) != number:
        raise FieldError("names of nodes have lengths that do not agree")
    if found and not prefix and number != num_nodes:
        raise FieldError(f"there are {number:,} names for {num_nodes:,} nodes")


def _times(meta: Mapping[str, Any]) -> list[Any]:
    times = meta.get("times")
    if not isinstance(times, list) or not all(type(time) in (int, str) for time in times):
        raise FieldError("times are not a list of integers or strings")
    return times


def _check_recipe(what: str, recipe: Any, given: tuple[str, ...] = ("static", "per_cell"), depth: int = 0) -> bool:
    """Raises FieldError where no carrier has such a recipe; whether its values come from an array, as ``given`` may."""
    if not isinstance(recipe, dict) or depth > _MAX_DEPTH:
        raise FieldError(f"{what} are described by {_shown(recipe)}, at depth {depth}")
    kind = recipe.get("kind")
    if kind in given:
        return True
    if kind == "degrees":
        _boolean(recipe, "log")
        return False
    if kind == "signature":
        _integer(recipe, "width", MAX_WIDTH)
        _integer(recipe, "seed", (1 << 64) - 1)
        return False
    if kind == "beside" and isinstance(recipe.get("parts"), list):
        holding = [part for part in recipe["parts"] if _check_recipe(what, part, given, depth + 1)]
        return bool(holding)
    if kind == "standardised":
        for name in ("mean", "std"):
            numbers = recipe.get(name)
            if not isinstance(numbers, list) or not all(_is_number(number) for number in numbers):
                raise FieldError(f"{name} of {what} is {_shown(numbers)}, not a list of numbers")
        return _check_recipe(what, recipe.get("of"), given, depth + 1)
    raise FieldError(f"{what} are of an unknown kind, {_shown(kind)}: the graph may be one of a newer version")


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < 1 << 63)


def _integer(meta: Mapping[str, Any], name: str, most: int) -> int:
    value = meta.get(name)
    if type(value) is not int or not 0 <= value <= most:
        raise FieldError(f"{name} is {_shown(value)}, not an integer from 0 to {most:,}")
    return value


def _boolean(meta: Mapping[str, Any], name: str) -> None:
    if not isinstance(meta.get(name), bool):
        raise FieldError(f"{name} is {_shown(meta.get(name))}, not true or false")


def _mapping(meta: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = meta.get(name)
    if not isinstance(value, dict):
        raise FieldError(f"{name} is {_shown(value)}, not an object with names and values")
    return value


def _shown(value: Any) -> str:
    """A value in a message, however long it is."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
