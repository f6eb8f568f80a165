"""Graph directories read by json, numpy and plain loops: the independent oracle of what a directory holds."""

from __future__ import annotations

import itertools
import json
import math
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

Row = list[float]
_MOST_NODES = math.isqrt(2**63 - 1)
_NUMBERS = {
    "cell_ptr": "i8",
    "arc_ptr": "i8",
    "edge_count": "i8",
    "structure": "i4",
    "node": "i4 i8",
    "row_ptr": "i4 i8",
    "col": "i4 i8",
    "weight": "f4 f8",
    "x": "b1 i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 f16",
    "y": "b1 i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 f16",
    "name_int": "i8",
    "name_ptr": "i8",
    "name_text": "u1",
    "name_order": "i8",
    "new_name_int": "i8",
    "new_name_ptr": "i8",
    "new_name_text": "u1",
}


class InvalidError(Exception):
    """The directory holds no graph; the text says why."""


@dataclass
class PlainShot:
    """One snapshot: node ids, arcs as (destination, source, weight) by position, rows of features and labels."""

    nodes: list[int]
    arcs: list[tuple[int, int, float | None]]
    time: int | str
    x: list[Row] | None
    y: list[Any] | None


@dataclass
class PlainGraph:
    """What a directory holds."""

    num_nodes: int
    directed: bool
    shots: list[PlainShot]
    names: list[int] | list[str] | None
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def num_edges(self) -> int:
        """Edges of all snapshots; an undirected one counts once."""
        arcs = [arc for shot in self.shots for arc in shot.arcs]
        return len(arcs) if self.directed else sum(arc[1] <= arc[0] for arc in arcs)


def read_plain(folder: Path) -> PlainGraph:
    """The graph in a directory. Raises InvalidError where there is none."""
    meta = _description(folder)
    if meta["format"] == "strobe-growing-graph":
        return _read_growing(folder, meta)
    if meta["format"] != "strobe-graph":
        _fail(f"format {meta['format']!r}")
    return _read_saved(folder, meta)[0]


def _fail(why: str) -> NoReturn:
    raise InvalidError(why)


def _need(holds: bool, why: str) -> None:
    if not holds:
        _fail(why)


def _description(folder: Path) -> dict[str, Any]:
    try:
        meta: dict[str, Any] = json.loads((folder / "graph.json").read_text())
    except (OSError, ValueError, RecursionError) as error:
        _fail(str(error))
    _need(isinstance(meta, dict) and "format" in meta and meta.get("version") == 3, "no description")
    rest = {key: value for key, value in meta.items() if key != "crc32"}
    _need(meta.get("crc32") == f"{zlib.crc32(json.dumps(rest, sort_keys=True).encode()):08x}", "checksum of graph.json")
    return meta


def _array(folder: Path, name: str, entry: Any) -> Any:
    _need(name in _NUMBERS and isinstance(entry, dict), f"array {name}")
    try:
        values = np.load(folder / f"{name}.npy", allow_pickle=False)
        raw = (folder / f"{name}.npy").read_bytes()
    except Exception as error:  # a header is parsed as Python: damaged ones raise nearly anything
        _fail(f"{name}: {error}")
    _need(entry.get("dtype") == values.dtype.str and entry.get("shape") == list(values.shape), f"{name}: other type")
    _need(raw.endswith(values.tobytes()) and len(raw) == 128 + values.nbytes, f"{name}: other length")
    _need(entry.get("crc32") == f"{zlib.crc32(values.tobytes()):08x}", f"{name}: checksum")
    _need(values.dtype.str.lstrip("<|") in _NUMBERS[name].split(), f"{name}: {values.dtype}")
    return values


def _read_saved(folder: Path, meta: dict[str, Any]) -> tuple[PlainGraph, dict[str, Any]]:
    num_nodes, times = meta.get("num_nodes"), meta.get("times")
    _need(type(num_nodes) is int and 0 <= num_nodes <= _MOST_NODES, "num_nodes")
    _need(type(meta.get("directed")) is bool and isinstance(meta.get("info"), dict), "directed or info")
    _need(isinstance(times, list) and all(type(time) in (int, str) for time in times), "times")
    _need(isinstance(meta.get("arrays"), dict), "arrays")
    assert isinstance(num_nodes, int)
    assert isinstance(times, list)
    arrays = {name: _array(folder, name, entry) for name, entry in meta["arrays"].items()}
    _need({"cell_ptr", "arc_ptr", "edge_count", "row_ptr", "col"} <= arrays.keys(), "an array is missing")
    structure = {name: arrays[name] for name in arrays if name not in "xy"}
    _need(all(values.ndim == 1 for values in structure.values()), "dimensions")
    shots: list[PlainShot] = []
    _need(arrays["cell_ptr"].size == arrays["arc_ptr"].size == len(times) + 1, "snapshots")
    _need(arrays["edge_count"].size == len(times), "edge_count")
    _need(arrays["cell_ptr"][0] == 0 and arrays["arc_ptr"][0] == 0, "first offsets")
    stored: list[PlainShot] = []  # snapshots whose structure no earlier one has
    cells, arcs, rows = 0, 0, 0
    numbers = arrays["structure"].tolist() if "structure" in arrays else list(range(len(times)))
    _need(len(numbers) == len(times), "length of structure")
    for t, number in enumerate(numbers):
        _need(0 <= number <= len(stored), f"structure of snapshot {t}")
        if number < len(stored):
            shots.append(_same_structure(stored[number], meta, arrays, t))
            continue
        shots.append(_shot(meta, arrays, t, number, cells, arcs))
        stored.append(shots[-1])
        cells, arcs = cells + len(shots[-1].nodes), arcs + len(shots[-1].arcs)
        rows += len(shots[-1].nodes) + 1
    _need(arrays["row_ptr"].size == rows and arrays["col"].size == arcs, "length of row_ptr or col")
    _need(arrays.get("weight", arrays["col"]).size == arcs, "length of weight")
    _need("node" not in arrays or arrays["node"].size == cells, "length of node")
    graph = PlainGraph(num_nodes, meta["directed"], shots, _names(arrays, "", num_nodes), meta["info"])
    for what, name in (("features", "x"), ("labels", "y")):
        _need(what in meta, f"{what} are missing")
        _need((name in arrays) == _holds(meta[what]), f"{what} and {name}")
        _need(name not in arrays or arrays[name].ndim in ((2,) if name == "x" else (1, 2)), f"dimensions of {name}")
        if meta[what] is not None:
            wide = _fill(graph, name, meta[what], arrays.get(name))
            _need(wide is not None or name == "y", f"{what} are no rows")
    return graph, arrays


def _same_structure(first: PlainShot, meta: dict[str, Any], arrays: dict[str, Any], t: int) -> PlainShot:
    """Snapshot t, which has the structure of an earlier one."""
    size, num_arcs = (int(arrays[name][t + 1]) - int(arrays[name][t]) for name in ("cell_ptr", "arc_ptr"))
    _need(size == len(first.nodes) and num_arcs == len(first.arcs), f"offsets of snapshot {t}")
    loops = sum(i == c for i, c, _ in first.arcs)
    _need(int(arrays["edge_count"][t]) == (num_arcs if meta["directed"] else (num_arcs + loops) // 2), f"edges at {t}")
    return PlainShot(first.nodes, first.arcs, meta["times"][t], None, None)


def _shot(meta: dict[str, Any], arrays: dict[str, Any], t: int, number: int, cells: int, arcs: int) -> PlainShot:
    """Snapshot t, the first of its structure, whose first cell and arc have these numbers."""
    size, num_arcs = (int(arrays[name][t + 1]) - int(arrays[name][t]) for name in ("cell_ptr", "arc_ptr"))
    _need(0 <= size <= meta["num_nodes"] and num_arcs >= 0, f"offsets of snapshot {t}")
    _need(cells + number + size < arrays["row_ptr"].size, "more cells than rows")
    _need("node" in arrays or size == meta["num_nodes"], f"nodes of snapshot {t}")
    nodes = list(range(size)) if "node" not in arrays else arrays["node"][cells : cells + size].tolist()
    _need(len(nodes) == size and nodes == sorted(set(nodes)), f"nodes of snapshot {t}")
    _need(not nodes or (nodes[0] >= 0 and nodes[-1] < meta["num_nodes"]), f"node ids of snapshot {t}")
    rows = arrays["row_ptr"][cells + number : cells + number + size + 1].tolist()
    col = arrays["col"][arcs : arcs + num_arcs].tolist()
    _need(rows == sorted(rows) and rows[0] == 0 and rows[-1] == num_arcs == len(col), f"row_ptr of snapshot {t}")
    weight: list[float | None] = [None] * num_arcs
    if "weight" in arrays:
        weight = arrays["weight"][arcs : arcs + num_arcs].tolist()
        _need(len(weight) == num_arcs, "weights")
        _need(all(w is not None and math.isfinite(w) for w in weight), f"weights of snapshot {t}")
    found = []
    for i in range(size):
        inside = col[rows[i] : rows[i + 1]]
        _need(inside == sorted(inside) and all(0 <= c < size for c in inside), f"col of snapshot {t}")
        found += [(i, c, w) for c, w in zip(inside, weight[rows[i] : rows[i + 1]], strict=True)]
    loops = sum(i == c for i, c, _ in found)
    if not meta["directed"]:
        _need(sorted(found, key=str) == sorted(((c, i, w) for i, c, w in found), key=str), f"one-way edge at {t}")
    _need(int(arrays["edge_count"][t]) == (num_arcs if meta["directed"] else (num_arcs + loops) // 2), f"edges at {t}")
    return PlainShot(nodes, found, meta["times"][t], None, None)


def _read_growing(folder: Path, meta: dict[str, Any]) -> PlainGraph:
    _need(type(meta.get("directed")) is bool and type(meta.get("weighted")) is bool, "directed or weighted")
    _need(isinstance(meta.get("info"), dict) and isinstance(meta.get("shapes"), dict), "info or shapes")
    _need({"features", "labels"} <= meta.keys() and {"x", "y"} <= meta["shapes"].keys(), "features or labels")
    for what, name in (("features", "x"), ("labels", "y")):
        shape = meta["shapes"][name]
        _need((shape is not None) == _holds(meta[what], ("per_cell",)), f"{what} and their shape")
        _need(shape is None or isinstance(shape, list), f"shape of {name}")
    graph = PlainGraph(0, meta["directed"], [], None, meta["info"])
    listed: list[Any] = []
    kinds = set()
    found = sorted(path.name for path in folder.iterdir() if path.name.isdigit())
    rows: dict[str, list[Any]] = {"x": [], "y": []}
    for t, name in enumerate(found):
        _need(name == f"{t:08}", f"part {t} is missing")
        part_meta = _description(folder / name)
        _need(part_meta["format"] == "strobe-graph", "a part of another kind")
        part, arrays = _read_saved(folder / name, part_meta)
        _need(len(part.shots) == 1 and part.directed == graph.directed, f"part {t} is no snapshot")
        _need(("weight" in arrays) == meta["weighted"] and part.num_nodes >= graph.num_nodes, f"part {t}")
        said = part_meta["info"]
        _need(type(said.get("edges")) is int and said["edges"] == part.num_edges, f"edges of part {t}")
        _need(isinstance(said.get("info"), dict), f"info of part {t}")
        new = part.num_nodes - graph.num_nodes
        names = _names(arrays, "new_", None) or []
        _need(len(names) == new if listed or names else True, f"names of part {t}")
        _need(not names or len(listed) == graph.num_nodes, f"names of part {t} after nodes without")
        kinds |= {type(each) for each in names}
        listed += names
        for key, what in (("x", "features"), ("y", "labels")):
            held = rows[key]
            held.append(arrays.get(key))
            expected = {"kind": "per_cell"} if meta[what] is None and key in arrays else meta[what]
            _need(part_meta[what] == expected, f"{what} of part {t}")
            _need(held[-1] is None or len(held[-1]) == len(part.shots[0].nodes), f"rows of part {t}")
        graph.num_nodes = part.num_nodes
        graph.shots.append(part.shots[0])
        graph.info = {**meta["info"], **said["info"]}
    _need(len(kinds) <= 1, "names of two kinds")
    graph.names = listed or None
    for what, name in (("features", "x"), ("labels", "y")):
        held = rows[name]
        _need(len({values is None for values in held}) <= 1, f"{name} in some parts only")
        shapes = {values.shape[1:] for values in held if values is not None}
        promised = meta["shapes"][name]
        _need(len(shapes | ({tuple(promised)} if promised is not None else set())) <= 1, f"shapes of {name}")
        _need(promised is None or not held or held[0] is not None, f"{name} is missing")
        values = np.concatenate(held) if held and held[0] is not None else None
        recipe = {"kind": "per_cell"} if meta[what] is None and values is not None else meta[what]
        if values is None and promised is not None:
            values = np.empty((0, *promised))
        if recipe is not None:
            _fill(graph, name, recipe, values)
    return graph


def _names(arrays: dict[str, Any], prefix: str, num_nodes: int | None) -> list[Any] | None:
    have = {name.removeprefix(prefix) for name in arrays if name.startswith(prefix + "name_")}
    if not have:
        return None
    order = arrays[prefix + "name_order"].tolist() if "name_order" in have else None
    found: list[Any]
    if have - {"name_order"} == {"name_int"}:
        found = arrays[prefix + "name_int"].tolist()
    else:
        _need(have - {"name_order"} == {"name_ptr", "name_text"}, "arrays of names")
        ptr, text = arrays[prefix + "name_ptr"].tolist(), arrays[prefix + "name_text"].tobytes()
        _need(bool(ptr) and ptr == sorted(ptr) and ptr[0] == 0 and ptr[-1] == len(text), "offsets of names")
        found = [text[ptr[k] : ptr[k + 1]] for k in range(len(ptr) - 1)]
    _need(num_nodes is None or len(found) == num_nodes, "number of names")
    if num_nodes is not None:
        ranks = list(range(len(found))) if order is None else order
        _need(sorted(ranks) == list(range(len(found))), "name_order")
        ranked = [found[rank] for rank in ranks]
        _need(all(a < b for a, b in itertools.pairwise(ranked)), "order of names")
    try:
        return [name.decode() if isinstance(name, bytes) else name for name in found]
    except UnicodeDecodeError as error:
        _fail(str(error))


def _holds(recipe: Any, given: tuple[str, ...] = ("static", "per_cell")) -> bool:
    """Whether rows of a recipe come from an array."""
    if recipe is None:
        return False
    _need(isinstance(recipe, dict), "recipe")
    if recipe.get("kind") in given:
        return True
    if recipe.get("kind") == "concatenated":
        _need(isinstance(recipe.get("parts"), list), "parts of a recipe")
        return bool([part for part in recipe["parts"] if _holds(part, given)])
    if recipe.get("kind") == "standardized":
        return _holds(recipe.get("inner"), given)
    _need(recipe.get("kind") in ("degrees", "random_signature"), "kind of recipe")
    return False


def _fill(graph: PlainGraph, name: str, recipe: Any, values: Any) -> int | None:
    """Gives every snapshot its rows; how wide they are, None where they are single numbers. Signatures are NaN."""
    wide, cells = None, 0
    for shot in graph.shots:
        made, wide = _rows(graph, shot, recipe, values, cells)
        setattr(shot, name, made)
        cells += len(shot.nodes)
    if not graph.shots:
        _, wide = _rows(graph, PlainShot([], [], 0, None, None), recipe, values, 0)
    if values is not None:
        bottom = _bottom(recipe)
        _need(len(values) == (graph.num_nodes if bottom == "static" else cells), f"rows of {name}")
    return wide


def _bottom(recipe: Any) -> str | None:
    if recipe.get("kind") in ("static", "per_cell"):
        return str(recipe["kind"])
    inner = [*recipe.get("parts", []), *([recipe["inner"]] if "inner" in recipe else [])]
    return next((found for each in inner if (found := _bottom(each))), None)


def _rows(graph: PlainGraph, shot: PlainShot, recipe: Any, values: Any, cells: int) -> tuple[list[Any], int | None]:
    _need(isinstance(recipe, dict), "recipe")
    kind, size = recipe.get("kind"), len(shot.nodes)
    if kind in ("static", "per_cell"):
        _need(values is not None, "recipe without array")
        _need(len(values) >= (graph.num_nodes if kind == "static" else cells + size), "too few rows")
        picked = values[shot.nodes] if kind == "static" else values[cells : cells + size]
        return picked.tolist(), values.shape[1] if values.ndim == 2 else None
    if kind == "degrees":
        _need(type(recipe.get("log")) is bool, "log")
        degrees = np.zeros((size, 2))
        for i, c, _ in shot.arcs:
            degrees[i, 0] += 1
            degrees[c, 1] += 1
        return (np.log1p(degrees) if recipe["log"] else degrees).tolist(), 2
    if kind == "random_signature":
        width, seed = recipe.get("width"), recipe.get("seed")
        _need(type(width) is int and 1 <= width <= 1 << 16, "width")
        _need(type(seed) is int and 0 <= seed < 1 << 64, "seed")
        return np.full((size, width), np.nan).tolist(), width
    if kind == "concatenated":
        _need(isinstance(recipe.get("parts"), list) and bool(recipe["parts"]), "parts")
        made = [_rows(graph, shot, part, values, cells) for part in recipe["parts"]]
        _need(all(wide is not None for _, wide in made), "single numbers beside others")
        _need(sum(_bottom(part) is not None for part in recipe["parts"]) <= 1, "two arrays")
        joined = [[number for rows, _ in made for number in rows[i]] for i in range(size)]
        return joined, sum(wide or 0 for _, wide in made)
    _need(kind == "standardized", "kind of recipe")
    rows, wide = _rows(graph, shot, recipe.get("inner"), values, cells)
    mean, std = recipe.get("mean"), recipe.get("std")
    _need(isinstance(mean, list) and isinstance(std, list) and len(mean) == len(std) == wide, "means")
    assert isinstance(mean, list)
    assert isinstance(std, list)
    for number in (*mean, *std):
        whole = type(number) is int and abs(number) < 1 << 63
        _need(whole or (type(number) is float and math.isfinite(number)), "a number")
    _need(all(number > 0 for number in std), "deviation")
    return [[(v - m) / s for v, m, s in zip(row, mean, std, strict=True)] for row in rows], wide
