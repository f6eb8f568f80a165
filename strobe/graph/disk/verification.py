"""Verification of a graph's files, whose indices kernels use without bounds checks, and a cache of verified graphs.

A graph is identified by its metadata and, for every file, device, inode, size and times: a file that was replaced or
written to makes another graph. Nothing is stored in the graph's own directory, which may be read-only or untrusted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import zlib
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import platformdirs

from strobe.errors import FormatError
from strobe.graph.arrays import Array
from strobe.graph.disk.metadata import METADATA_FILE, NEW_PREFIX
from strobe.graph.storage import first_snapshots, offsets
from strobe.ops.runtime.njit import cached_njit
from strobe.ops.sparse.csr import IntArray, readonly_view

_CHECK_VERSION = 1
"""Increased when a check becomes stricter, so that graphs are checked again."""
_MAX_ENTRIES = 1 << 16
_CLOCK_TICK_S = 2.0  # the coarsest clock of a file system

FAULTS = {
    1: "row_ptr does not go from 0 to the number of the snapshot's arcs, never descending",
    2: "col has a position that is not one of the snapshot's nodes, or descends within a row",
    3: "node has an id that is not one of the graph's nodes, or does not ascend",
    4: "edge_count is not the number of its edges",
    5: "an edge of an undirected graph is stored in one direction only, or with two weights",
}
"""Messages of ``first_fault`` by code."""

_ROWS, _COLUMNS, _NODES, _COUNT, _DIRECTIONS = FAULTS

# Odd 64-bit constants of SplitMix64 and of Knuth's multiplicative hash, as signed numbers.
_FIRST, _SECOND, _THIRD = (
    int(np.array(c, np.uint64).astype(np.int64)) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


class VerificationCache:
    """One empty file per verified graph, named by its digest. Lost entries only cost another check."""

    def __init__(self, folder: Path, *, max_entries: int = _MAX_ENTRIES) -> None:
        self.folder = folder
        self._max_per_shard = max(2, max_entries // 256)

    def __contains__(self, digest: str) -> bool:
        return os.path.exists(self._entry(digest))  # noqa: PTH110  Path.exists raises if a folder is unreadable

    def add(self, digest: str) -> None:
        """Add a graph, if the cache can be written; the oldest half of a full shard is removed."""
        entry = self._entry(digest)
        with contextlib.suppress(OSError):
            entry.parent.mkdir(parents=True, exist_ok=True)
            entry.touch()
            if len(entries := list(entry.parent.iterdir())) > self._max_per_shard:
                newest_last = sorted(entries, key=lambda path: path.stat().st_mtime_ns)
                for oldest in newest_last[: -self._max_per_shard // 2]:
                    oldest.unlink(missing_ok=True)

    def _entry(self, digest: str) -> Path:
        return self.folder / digest[:2] / digest  # 256 shards, so that no folder is large


def verification_cache() -> VerificationCache:
    """Return the cache of this user."""
    return VerificationCache(Path(platformdirs.user_cache_dir("strobe")) / "verified-graphs")


def graph_digest(meta: Mapping[str, Any], files: Mapping[str, os.stat_result]) -> str:
    """Return the identity of a graph: 128 bits of a hash over its metadata and the identity of its files."""
    known = [(name, s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for name, s in sorted(files.items())]
    text = json.dumps([_CHECK_VERSION, meta, known], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def mtimes_are_stable(files: Iterable[os.stat_result], now_s: float | None = None) -> bool:
    """Return whether a later write would change a file's times: the last write is over a clock tick ago."""
    newest = max((max(s.st_mtime, s.st_ctime) for s in files), default=0.0)
    return newest + _CLOCK_TICK_S < (time.time() if now_s is None else now_s)


VERIFY_CHUNK_BYTES = 16 << 20
"""Bytes checked at once by one thread."""
_GROUP_SIZE = 1 << 20  # cells and arcs of the structures checked at once
_SINGLE_THREAD_BYTES = 4 << 20  # below this, starting threads takes longer than it saves

OnBytes = Callable[[int], None]
"""Called with the number of bytes checked since the last call."""


def check_contents(folder: Path, meta: Mapping[str, Any], arrays: Mapping[str, Array], on_bytes: OnBytes) -> None:
    """Raise FormatError if an array does not match its checksum or has an index out of range.

    Reads every byte at least once, in all threads, and copies nothing. Checksums come first, so that a damaged file is
    reported as damaged.

    Args:
        folder: directory of the graph, for messages.
        meta: validated metadata.
        arrays: all arrays of the graph, mapped.
        on_bytes: called after bytes were compared with their checksums.
    """

    def check_sum(name: str) -> None:
        if _crc(arrays[name], on_bytes) != meta["arrays"][name]["crc32"]:
            raise FormatError(
                f"{folder / name}.npy is damaged: its contents do not match the checksum in {METADATA_FILE}. "
                "Restore the graph from a copy, or build it again."
            )

    def check_structures(numbers: range) -> None:
        if fault := _structure_fault(meta, arrays, stored, numbers):
            raise _invalid_graph_error(folder, fault)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        small = sum(array.nbytes for array in arrays.values()) <= _SINGLE_THREAD_BYTES
        run: Callable[..., Iterator[None]] = map if small else pool.map
        list(run(check_sum, sorted(arrays, key=lambda name: -arrays[name].nbytes)))
        if fault := _pointer_fault(meta, arrays) or _names_fault(arrays, "") or _names_fault(arrays, NEW_PREFIX):
            raise _invalid_graph_error(folder, fault)
        stored = _by_structure(arrays)
        list(run(check_structures, _groups(stored.cell_ptr, stored.arc_ptr)))
    weight = arrays.get("weight")
    if weight is not None and not all(bool(np.isfinite(part).all()) for part in _chunks(weight)):
        raise _invalid_graph_error(folder, "weight has values that are not finite")


def _invalid_graph_error(folder: Path, fault: str) -> FormatError:
    return FormatError(
        f"{folder} is no valid graph: {fault}. Its checksums match, so it was written by another program or edited: "
        "build it again, and do not trust where it came from."
    )


def _crc(array: Array, on_bytes: OnBytes) -> str:
    crc = 0
    for part in _chunks(array):
        crc = zlib.crc32(part.data, crc)
        on_bytes(part.nbytes)
    return f"{crc:08x}"


def _chunks(array: Array) -> Iterator[Array]:
    """Yield a contiguous array in chunks of ``VERIFY_CHUNK_BYTES``."""
    if array.nbytes:
        flat = array.reshape(-1)
        step = VERIFY_CHUNK_BYTES // array.itemsize
        yield from (flat[start : start + step] for start in range(0, flat.size, step))


def _pointer_fault(meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> str | None:
    """Return what is wrong with the offsets of snapshots, or with the structures that they share."""
    for name in ("cell_ptr", "arc_ptr"):
        ptr = arrays[name]
        if ptr[0] != 0 or bool((ptr[1:] < ptr[:-1]).any()):
            return f"{name} does not ascend from 0"
    if fault := _sharing_fault(arrays):
        return fault
    stored = _by_structure(arrays)
    count = len(stored.first)
    for name, ptr, end in (
        ("cell_ptr", stored.cell_ptr, arrays["row_ptr"].size - count),
        ("arc_ptr", stored.arc_ptr, arrays["col"].size),
    ):
        if ptr[-1] != end:
            return f"{name} does not go from 0 to {end:,}, counting each structure once"
    sizes = np.diff(arrays["cell_ptr"])
    wrong = sizes > meta["num_nodes"] if "node" in arrays else sizes != meta["num_nodes"]
    return f"snapshot {int(np.argmax(wrong))} has a wrong number of nodes" if bool(wrong.any()) else None


def _sharing_fault(arrays: Mapping[str, Array]) -> str | None:
    """Return what is wrong with the numbers of structures: later snapshots must be of the size of the first."""
    structure = arrays.get("structure")
    if structure is None or not structure.size:
        return None
    highest = np.maximum.accumulate(structure)
    if structure[0] != 0 or structure.min() < 0 or bool((np.diff(highest) > 1).any()):
        return "structure is not numbered from 0 by first appearance"
    first = first_snapshots(structure)[structure]
    for sizes in (np.diff(arrays["cell_ptr"]), np.diff(arrays["arc_ptr"]), arrays["edge_count"]):
        if bool((wrong := sizes != sizes[first]).any()):
            t = int(np.argmax(wrong))
            return f"snapshot {t} has the structure of snapshot {first[t]}, but another size"
    return None


class _Stored(NamedTuple):
    """First snapshots of the structures, and offsets of their cells and arcs."""

    first: IntArray
    cell_ptr: IntArray
    arc_ptr: IntArray


def _by_structure(arrays: Mapping[str, Array]) -> _Stored:
    structure, cell_ptr, arc_ptr = arrays.get("structure"), arrays["cell_ptr"], arrays["arc_ptr"]
    if structure is None:
        return _Stored(np.arange(cell_ptr.size - 1), cell_ptr, arc_ptr)
    first = first_snapshots(structure)
    return _Stored(first, offsets(np.diff(cell_ptr)[first]), offsets(np.diff(arc_ptr)[first]))


def _groups(cell_ptr: Array, arc_ptr: Array) -> Iterator[range]:
    """Yield ranges of structures, each large enough to occupy a thread."""
    first, work = 0, cell_ptr + arc_ptr
    while first < work.size - 1:
        last = max(first + 1, int(np.searchsorted(work, work[first] + _GROUP_SIZE, side="right")) - 1)
        yield range(first, last)
        first = last


def _structure_fault(
    meta: Mapping[str, Any], arrays: Mapping[str, Array], stored: _Stored, numbers: range
) -> str | None:
    weight = arrays.get("weight")
    fault = first_fault(
        numbers,
        (stored.cell_ptr, stored.arc_ptr, arrays["edge_count"][stored.first]),
        (arrays["row_ptr"], arrays["col"]),
        arrays.get("node"),
        None if weight is None else weight.view(np.int32 if weight.itemsize == 4 else np.int64),
        num_nodes=meta["num_nodes"],
        directed=meta["directed"],
    )
    return None if fault is None else f"snapshot {stored.first[fault[1]]}: {FAULTS[fault[0]]}"


def _names_fault(arrays: Mapping[str, Array], prefix: str) -> str | None:
    """Return what is wrong with the names of nodes; names that a part adds come in any order."""
    order = arrays.get(prefix + "name_order")
    if order is not None and order.size and (order.min() < 0 or order.max() >= order.size):
        return f"{prefix}name_order has positions that are no nodes"
    if (integers := arrays.get(prefix + "name_int")) is not None:
        ranked = integers if order is None else integers[order]
        descends = not prefix and bool((ranked[1:] <= ranked[:-1]).any())
        return f"{prefix}name_int does not ascend" if descends else None
    if (ptr := arrays.get(prefix + "name_ptr")) is None:
        return None
    text = arrays[prefix + "name_text"]
    if ptr[0] != 0 or ptr[-1] != text.size or bool((ptr[1:] < ptr[:-1]).any()):
        return f"{prefix}name_ptr does not go from 0 to the length of name_text, never descending"
    if not _is_utf8(ptr, text):
        return f"{prefix}name_text is not UTF-8"
    if not prefix and first_descent(ptr, text, order) >= 0:
        return f"{prefix}name_text does not ascend"
    return None


def _is_utf8(ptr: Array, text: Array) -> bool:
    """Return whether every name is valid UTF-8: the whole text is, and no name begins within a character."""
    begins = text[ptr[:-1][ptr[:-1] < text.size]]
    if bool((begins & 0xC0 == 0x80).any()):
        return False
    decoder = getincrementaldecoder("utf-8")()
    try:
        for part in _chunks(text):
            decoder.decode(part.tobytes())
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def first_fault(
    numbers: range,
    ends: tuple[IntArray, IntArray, IntArray],
    rows: tuple[IntArray, IntArray],
    node: IntArray | None,
    weight_bits: IntArray | None,
    *,
    num_nodes: int,
    directed: bool,
) -> tuple[int, int] | None:
    """Find the first structure with invalid indices, as (code of ``FAULTS``, number); None if all are valid.

    One pass over the arrays without a copy, about 1 ns an arc. Whether every arc of an undirected graph has its reverse
    is checked by a sum of hashes, with a collision probability of 2^-64.

    Args:
        numbers: range of structures to check.
        ends: ``cell_ptr``, ``arc_ptr`` and ``edge_count``. The first two must be valid.
        rows: ``row_ptr`` and ``col``.
        node: ids of present nodes; None if all are present.
        weight_bits: weights of arcs, viewed as integers.
        num_nodes: nodes of the graph.
        directed: whether the graph is directed.
    """
    empty = np.empty(0, np.int32)
    arrays = (*ends, *rows, *(empty if array is None else array for array in (node, weight_bits)))
    views = tuple(readonly_view(array) for array in arrays)
    code, t = _first_fault(numbers.start, numbers.stop, num_nodes, directed, views)
    return (code, t) if code else None


def first_descent(ptr: IntArray, text: IntArray, order: IntArray | None) -> int:
    """Find the first name, in ``order``, that is not above its predecessor by bytes; -1 if all ascend.

    ``ptr`` and ``order`` must be valid.
    """
    ranked = np.empty(0, np.int64) if order is None else order
    return int(_first_descent(readonly_view(ptr), readonly_view(text), readonly_view(ranked)))


@cached_njit
def _first_fault(start: int, stop: int, num_nodes: int, directed: bool, arrays: Any) -> tuple[int, int]:
    cell_ptr, arc_ptr, edge_count, row_ptr, col, node, weight_bits = arrays
    for t in range(start, stop):
        num_cells, num_arcs = cell_ptr[t + 1] - cell_ptr[t], arc_ptr[t + 1] - arc_ptr[t]
        row, arc = cell_ptr[t] + t, arc_ptr[t]
        if row_ptr[row] != 0 or row_ptr[row + num_cells] != num_arcs:
            return _ROWS, t
        loops = 0
        balance: Any = np.int64(0)
        for i in range(num_cells):
            begin, end = row_ptr[row + i], row_ptr[row + i + 1]
            if end < begin or end > num_arcs:
                return _ROWS, t
            before: Any = np.int64(0)
            for k in range(arc + begin, arc + end):
                source: Any = np.int64(col[k])
                if source < before or source >= num_cells:
                    return _COLUMNS, t
                before = source
                if source == i:
                    loops += 1
                elif not directed:
                    low, high = (source, i) if source < i else (i, source)
                    weight = np.int64(weight_bits[k]) if weight_bits.size else np.int64(0)
                    key = (low * _FIRST + high) * _SECOND + weight
                    key = (key ^ (key >> 29)) * _THIRD
                    balance += key if source < i else -key
        if edge_count[t] != (num_arcs if directed else (num_arcs + loops) // 2):
            return _COUNT, t
        if balance != 0:
            return _DIRECTIONS, t
        if node.size:
            last = np.int64(-1)
            for k in range(cell_ptr[t], cell_ptr[t + 1]):
                if node[k] <= last or node[k] >= num_nodes:
                    return _NODES, t
                last = np.int64(node[k])
    return 0, 0


@cached_njit
def _first_descent(ptr: Any, text: Any, order: Any) -> int:
    for rank in range(1, ptr.size - 1):
        low, high = (order[rank - 1], order[rank]) if order.size else (rank - 1, rank)
        length, other = ptr[low + 1] - ptr[low], ptr[high + 1] - ptr[high]
        above = other > length
        for k in range(min(length, other)):
            a, b = text[ptr[low] + k], text[ptr[high] + k]
            if a != b:
                above = b > a
                break
        if not above:
            return rank
    return -1
