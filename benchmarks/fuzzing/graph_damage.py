"""Small valid graph directories, and ways to damage them with and without making their checksums fit again."""

from __future__ import annotations

import json
import random
import shutil
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from strobe.graph import (
    Concatenated,
    Degrees,
    DiskSink,
    DynamicGraph,
    Edges,
    FeatureProvider,
    GraphBuilder,
    GrowingGraph,
    NodeNames,
    PerCell,
    RandomSignature,
    Standardized,
    Static,
)

Damage = Callable[[random.Random, Path], None]

_NODES, _SNAPSHOTS = 7, 6
_NUMBERS = (0, 1, -1, 2, 3, 5, 6, 7, 8, 127, 255, 2**31 - 1, 2**31, 2**40, 2**62, -(2**31), -(2**63))
_FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e-300, 1e30, 3e38, -3e38, 1e300, float("nan"), float("inf"), float("-inf"))
_VALUES: tuple[Any, ...] = (
    *(None, True, False, "", "0", "4", "é", [], {}, [0], [[]], {"kind": "degrees", "log": True}, {"kind": "static"}),
    *(0, 1, 2, 3, 6, 7, 8, -1, 10**6, 2**31, 3_037_000_499, 2**63, 10**30, 0.5, 1e300, float("nan"), float("inf")),
    *("<i4", "<i8", "<f4", "<f8", ">i4", "|u1", "O", "00000000", "../x", "strobe-graph", "strobe-growing-graph"),
)


def make_graphs(folder: Path) -> dict[str, str]:
    """Writes valid graphs into a folder. Returns the task that each has labels for, by its name."""
    random_edges = np.random.default_rng(0)
    tasks = {}
    for number, (name, options) in enumerate(_KINDS.items()):
        tasks[name] = options.get("task", "link-prediction")
        _write(folder / name, np.random.default_rng(number), **options)
    for name, weighted in (("grown", False), ("grown weighted", True)):
        _grow(folder / name, random_edges, weighted)
        tasks[name] = "regression" if weighted else "link-prediction"
    return tasks


_KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "undirected weighted": {"directed": False, "weighted": True, "features": "static", "task": "regression"},
    "present": {"present": True, "features": "cell", "labels": "classes", "task": "classification"},
    "named": {"names": True, "features": "static", "labels": "static classes", "task": "classification"},
    "derived": {"present": True, "weighted": True, "features": "derived", "labels": "targets", "task": "regression"},
    "concatenated": {"directed": False, "present": True, "features": "concatenated", "names": True},
    "shared": {"weighted": True, "present": True, "repeats": True, "features": "cell"},
    "doubles": {"weighted": True, "dtype": np.float64, "features": "cell", "labels": "targets", "task": "regression"},
}


def _write(
    place: Path,
    rng: np.random.Generator,
    *,
    directed: bool = True,
    weighted: bool = False,
    present: bool = False,
    names: bool = False,
    features: str | None = None,
    labels: str | None = None,
    dtype: Any = np.float32,
    repeats: bool = False,
    task: str = "",
) -> DynamicGraph:
    del task
    with DiskSink(place) as sink:
        before: Any = None
        builder = GraphBuilder(sink, num_nodes=_NODES, directed=directed, weighted=weighted)
        for t in range(_SNAPSHOTS):
            nodes = np.sort(rng.permutation(_NODES)[: 0 if t == 2 else 5]) if present else np.arange(_NODES)
            ends = rng.integers(0, len(nodes), (2, 9)) if len(nodes) else np.empty((2, 0), np.int64)
            edges = Edges(nodes[ends[0]], nodes[ends[1]], _normal(rng, (ends.shape[1],), dtype) if weighted else None)
            if repeats and t % 2:  # the structure is stored once
                nodes, edges = before
            before = nodes, edges
            builder.add(
                edges,
                nodes=nodes if present else None,
                time=t if names else f"day {t}",
                x=_normal(rng, (len(nodes), 3), dtype) if features in ("cell", "concatenated") else None,
                y={"classes": rng.integers(-1, 3, len(nodes)), "targets": rng.normal(size=len(nodes))}.get(
                    labels or ""
                ),
            )
        fixed = Static(rng.integers(-1, 2, _NODES)) if labels == "static classes" else None
        named = NodeNames.from_names([f"n{k}é"[: k + 1] for k in range(_NODES)], in_any_order=True) if names else None
        return builder.finish(features=_carrier(features, rng), labels=fixed, names=named, info={"a": [1, None]})


def _normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    return rng.normal(size=shape).astype(dtype)


def _carrier(kind: str | None, rng: np.random.Generator) -> FeatureProvider | None:
    if kind == "static":
        return Static(rng.normal(size=(_NODES, 2)).astype(np.float32))
    if kind == "derived":
        return Standardized(Degrees(log=True), (0.5, 0.25), (1.5, 2.0))
    if kind == "concatenated":
        return Concatenated((RandomSignature(width=4, seed=1), PerCell(np.empty((0, 3), np.float32)), Degrees()))
    return None


def _grow(place: Path, rng: np.random.Generator, weighted: bool) -> None:
    features = PerCell(np.empty((0, 2), np.float32)) if weighted else Degrees()
    with GrowingGraph.create(place, weighted=weighted, features=features, info={"b": 1}) as growing:
        for t in range(_SNAPSHOTS):
            size = min(2 + t, _NODES)
            edges = rng.integers(0, size, (2, 6))
            new = range(growing.num_nodes, size)
            growing.append(
                Edges(edges[0], edges[1], rng.normal(size=6) if weighted else None),
                x=rng.normal(size=(size, 2)) if weighted else None,
                names=[f"n{k}" for k in new] if weighted else [3 * k for k in new],
                time=10 * t,
                info={"seen": t},
            )


def damage(rng: random.Random, folder: Path) -> bool:
    """Damages a directory in one or a few ways; whether its checksums were made to fit again."""
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
        rng.choices([way for way, _ in _WAYS], [weight for _, weight in _WAYS])[0](rng, folder)
    if forged := rng.random() < 0.8:
        for description in sorted(folder.rglob("graph.json"), key=lambda path: -len(path.parts)):
            _seal(description)
    return forged


def _files(folder: Path, pattern: str = "*") -> list[Path]:
    return sorted(path for path in folder.rglob(pattern) if path.is_file())


def _flip(rng: random.Random, folder: Path) -> None:
    if files := [path for path in _files(folder) if path.stat().st_size]:
        path = rng.choice(files)
        data = bytearray(path.read_bytes())
        first = 128 if path.suffix == ".npy" and len(data) > 128 and rng.random() < 0.8 else 0
        for _ in range(rng.choice((1, 2))):
            data[rng.randrange(first, len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)


def _cut(rng: random.Random, folder: Path) -> None:
    if files := _files(folder):
        path = rng.choice(files)
        data = path.read_bytes()
        path.write_bytes(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.7 else data + data[-8:])


def _swap(rng: random.Random, folder: Path) -> None:
    files = _files(folder)
    if len(files) > 1:
        first, second = rng.sample(files, 2)
        one, two = first.read_bytes(), second.read_bytes()
        first.write_bytes(two)
        second.write_bytes(one)


def _remove(rng: random.Random, folder: Path) -> None:
    if files := _files(folder):
        path = rng.choice(files)
        path.unlink()
        if rng.random() < 0.3:
            path.mkdir()
        elif rng.random() < 0.4:
            path.symlink_to(rng.choice([*files, folder, Path("/dev/null"), path]))


def _extra(rng: random.Random, folder: Path) -> None:
    name = rng.choice(("notes.txt", "node.npy", "00000006", "z.npy", "name_order.npy"))
    if not (folder / name).exists():
        (folder / name).write_bytes(rng.randbytes(rng.choice((0, 9, 200))))


def _parts(rng: random.Random, folder: Path) -> None:
    """A part of a graph that grows goes away, comes twice or changes places; of others a whole is put inside."""
    parts = sorted(path for path in folder.iterdir() if path.is_dir())
    if len(parts) < 2:
        return
    first, second = rng.sample(parts, 2)
    way = rng.randrange(4)
    if way == 0:
        shutil.rmtree(first)
    elif way == 1:
        with suppress(FileExistsError):
            shutil.copytree(first, folder / f"{len(parts):08}", symlinks=True)
    elif way == 2:
        shutil.rmtree(parts[-1])
    else:
        first.rename(aside := folder / "aside")
        second.rename(first)
        aside.rename(second)


def _load(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except Exception:  # a header is parsed as Python: damaged ones raise nearly anything
        return None


def _number(rng: random.Random, folder: Path) -> None:
    """One number of an array changes to one that is likely to be a limit of something."""
    arrays = [(path, values) for path in _files(folder, "*.npy") if (values := _load(path)) is not None and values.size]
    if not arrays:
        return
    carried = [each for each in arrays if each[1].dtype.kind == "f" or each[0].stem in ("col", "y", "name_text")]
    path, values = rng.choice(carried if carried and rng.random() < 0.5 else arrays)
    at = rng.randrange(values.size)
    if values.dtype.kind == "f":
        near: Any = rng.choice((*_FLOATS, rng.gauss(0, 1)))
    else:
        here = int(values.flat[at])
        near = rng.choice((*_NUMBERS, here + 1, here - 1, here ^ (1 << rng.randrange(8)), int(values.flat[0])))
    with np.errstate(all="ignore"):
        values.flat[at] = np.array(near).astype(values.dtype)
    np.save(path, values)


def _rewire(rng: random.Random, folder: Path) -> None:
    """Arcs of a snapshot get other sources, in range and in order: with forged checksums a valid graph, if directed."""
    place = rng.choice(_files(folder, "col.npy") or [folder / "none"]).parent
    col, row_ptr, cell_ptr, arc_ptr = (
        _load(place / f"{name}.npy") for name in ("col", "row_ptr", "cell_ptr", "arc_ptr")
    )
    if any(
        values is None or values.dtype.kind != "i" or values.ndim != 1 for values in (col, row_ptr, cell_ptr, arc_ptr)
    ):
        return
    t = rng.randrange(max(len(cell_ptr) - 1, 1))
    with suppress(IndexError, ValueError, OverflowError), np.errstate(all="ignore"):  # other damage may have come first
        size, first = int(cell_ptr[t + 1] - cell_ptr[t]), int(cell_ptr[t]) + t
        for row in range(min(size, _NODES)):
            begin, end = int(row_ptr[first + row]), int(row_ptr[first + row + 1])
            sources = sorted(rng.randrange(size) for _ in range(min(end - begin, 99)))
            col[int(arc_ptr[t]) + begin : int(arc_ptr[t]) + end] = sources
        np.save(place / "col.npy", col)


def _carry(rng: random.Random, folder: Path) -> None:
    """What cells or arcs carry changes to numbers that are allowed, however large, small or constant."""
    arrays = [
        (path, values)
        for name in ("x", "y", "weight")
        for path in _files(folder, f"{name}.npy")
        if (values := _load(path)) is not None and values.size
    ]
    if not arrays:
        return
    path, values = rng.choice(arrays)
    chosen = np.array([rng.random() < 0.7 for _ in range(values.size)]).reshape(values.shape)
    numbers: tuple[float, ...]
    if values.dtype.kind == "f":
        numbers = rng.choice((_FLOATS, (0.0,), (1e30, -1e30), (1e-45,), (1.0, 2.0), (3e38,)))
    else:
        numbers = rng.choice(((0,), (-1,), (0, 1), (-1, 2**40), (-(2**63), 2**63 - 1), tuple(range(9))))
    with np.errstate(all="ignore"):
        new = np.array([rng.choice(numbers) for _ in range(values.size)]).astype(values.dtype).reshape(values.shape)
        np.save(path, np.where(chosen, new, values))


def _reshape(rng: random.Random, folder: Path) -> None:
    """An array gets another type, length, order or shape; its description with it, where checksums are forged."""
    arrays = [(path, values) for path in _files(folder, "*.npy") if (values := _load(path)) is not None]
    if not arrays:
        return
    path, values = rng.choice(arrays)
    way = rng.randrange(7)
    with np.errstate(all="ignore"):
        if way == 0:
            values = values.astype(rng.choice(("<i4", "<i8", "<f4", "<f8", ">i4", "<u2", "|b1", "<c8", "|u1")))
        elif way == 1 and len(values):
            values = values[:-1]
        elif way == 2 and len(values):
            values = np.concatenate((values, values[-1:]))
        elif way == 3:
            values = values[::-1].copy()
        elif way == 4:
            values = values.reshape(-1, 1) if values.ndim == 1 else values[:, 0].copy()
        elif way == 5:
            values = np.sort(values, axis=0)
        else:
            values = rng.choice(arrays)[1]
    np.save(path, values)


def _edit(rng: random.Random, folder: Path) -> None:
    """A value anywhere in a description is replaced, removed or doubled."""
    path = rng.choice(_files(folder, "graph.json") or [folder / "none"])
    meta = _json(path)
    if meta is None:
        return
    here: Any = meta
    trail = [key for key in meta if key not in ("format", "version", "crc32")] or ["info"]
    key: Any = rng.choice(trail)
    while isinstance(here.get(key) if isinstance(here, dict) else here[key], dict | list) and rng.random() < 0.85:
        inner = here[key]
        if not inner:
            break
        here, key = inner, rng.choice(list(inner)) if isinstance(inner, dict) else rng.randrange(len(inner))
    way = rng.random()
    if way < 0.75 or isinstance(here, list):
        old = here.get(key) if isinstance(here, dict) else here[key]
        near = [old + 1, old - 1, -old, float(old), str(old)] if isinstance(old, int) and abs(old) < 1e9 else []
        here[key] = rng.choice([*_VALUES, *near])
    elif way < 0.9:
        here.pop(key, None)
    else:
        here[rng.choice(("extra", "x", "col", "../../x", "weight", "name_order"))] = here.get(key)
    path.write_text(json.dumps(meta))


_WAYS: list[tuple[Damage, int]] = [
    *((_number, 30), (_edit, 20), (_reshape, 8), (_flip, 12), (_cut, 4), (_swap, 4), (_remove, 3), (_extra, 3)),
    *((_parts, 4), (_rewire, 16), (_carry, 16)),
]


def _json(path: Path) -> dict[str, Any] | None:
    try:
        meta = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return None
    return meta if isinstance(meta, dict) else None


def _seal(path: Path) -> None:
    """Makes a description agree with the files beside it, as someone would who wants them to be read."""
    meta = _json(path)
    if meta is None:
        return
    arrays = meta.get("arrays")
    for name, entry in arrays.items() if isinstance(arrays, dict) else ():
        values = _load(path.parent / f"{name}.npy") if "/" not in name else None
        if isinstance(entry, dict) and values is not None:
            as_said = (entry.get("dtype"), entry.get("shape"))
            if as_said != (values.dtype.str, list(values.shape)) and zlib.crc32(name.encode()) % 4:
                entry |= {"dtype": values.dtype.str, "shape": list(values.shape)}
            entry["crc32"] = f"{zlib.crc32(values.tobytes()):08x}"
    meta.pop("crc32", None)
    meta["crc32"] = f"{zlib.crc32(json.dumps(meta, sort_keys=True).encode()):08x}"
    path.write_text(json.dumps(meta))
