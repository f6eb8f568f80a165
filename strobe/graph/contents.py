"""Checks of what is in the arrays of a saved graph: their checksums, and every index that kernels will trust."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from strobe.errors import FormatError
from strobe.graph.arrays import Array
from strobe.graph.description import META
from strobe.graph.fields import NEW

CHUNK_BYTES = 16 << 20
"""Bytes checked at once, by one thread."""
_GROUP = 1 << 20  # cells and arcs of the snapshots that are checked at once
_ALONE_UP_TO = 4 << 20  # bytes for which starting threads takes longer than it saves

OnBytes = Callable[[int], None]
"""Called with the number of bytes that were checked since it was called last."""


def check_contents(folder: Path, meta: Mapping[str, Any], arrays: Mapping[str, Array], on_bytes: OnBytes) -> None:
    """Raises FormatError where an array does not match its checksum, or holds an index that is out of range.

    Reads every byte at least once, with all threads, and copies nothing. Checksums come first: a damaged file is called
    damaged, whatever its damage made of it.

    Args:
        folder: where the graph is, for messages.
        meta: its description, checked by itself.
        arrays: all arrays of it, mapped.
        on_bytes: called as arrays have been compared with their checksums.
    """

    def check_sum(name: str) -> None:
        if _crc(arrays[name], on_bytes) != meta["arrays"][name]["crc32"]:
            raise FormatError(
                f"{folder / name}.npy is damaged: its contents do not match the checksum in {META}. "
                "Restore the graph from a copy, or build it again."
            )

    def check_snapshots(snapshots: range) -> None:
        if fault := _fault(meta, arrays, snapshots):
            raise _broken(folder, fault)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        small = sum(array.nbytes for array in arrays.values()) <= _ALONE_UP_TO
        run: Callable[..., Iterator[None]] = map if small else pool.map
        list(run(check_sum, sorted(arrays, key=lambda name: -arrays[name].nbytes)))
        if fault := _pointer_fault(meta, arrays) or _names_fault(arrays, "") or _names_fault(arrays, NEW):
            raise _broken(folder, fault)
        list(run(check_snapshots, _groups(arrays["cell_ptr"], arrays["arc_ptr"])))
    weight = arrays.get("weight")
    if weight is not None and not all(bool(np.isfinite(part).all()) for part in _parts(weight)):
        raise _broken(folder, "weight has values that are not finite")


def _broken(folder: Path, fault: str) -> FormatError:
    return FormatError(
        f"{folder} is no valid graph: {fault}. Its checksums match, so it was written by another program or edited: "
        "build it again, and do not trust where it came from."
    )


def _crc(array: Array, on_bytes: OnBytes) -> str:
    crc = 0
    for part in _parts(array):
        crc = zlib.crc32(part.data, crc)
        on_bytes(part.nbytes)
    return f"{crc:08x}"


def _parts(array: Array) -> Iterator[Array]:
    """A contiguous array in pieces of ``CHUNK_BYTES``."""
    if array.nbytes:
        flat = array.reshape(-1)
        step = CHUNK_BYTES // array.itemsize
        yield from (flat[start : start + step] for start in range(0, flat.size, step))


def _pointer_fault(meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> str | None:
    """What is wrong with where snapshots begin."""
    ends = {"cell_ptr": arrays["row_ptr"].size - len(meta["times"]), "arc_ptr": arrays["col"].size}
    for name, end in ends.items():
        ptr = arrays[name]
        if ptr[0] != 0 or ptr[-1] != end or bool((ptr[1:] < ptr[:-1]).any()):
            return f"{name} does not go from 0 to {end:,}, never descending"
    sizes = np.diff(arrays["cell_ptr"])
    wrong = sizes > meta["num_nodes"] if "node" in arrays else sizes != meta["num_nodes"]
    return f"snapshot {int(np.argmax(wrong))} has a wrong number of nodes" if bool(wrong.any()) else None


def _groups(cell_ptr: Array, arc_ptr: Array) -> Iterator[range]:
    """Snapshots one after the other, so many at a time that a thread has something to do."""
    first, work = 0, cell_ptr + arc_ptr
    while first < work.size - 1:
        last = max(first + 1, int(np.searchsorted(work, work[first] + _GROUP, side="right")) - 1)
        yield range(first, last)
        first = last


def _fault(meta: Mapping[str, Any], arrays: Mapping[str, Array], snapshots: range) -> str | None:
    from strobe.ops.index_faults import FAULTS, first_fault  # loads numba, which a graph that is known needs not

    weight = arrays.get("weight")
    found = first_fault(
        snapshots,
        (arrays["cell_ptr"], arrays["arc_ptr"], arrays["edge_count"]),
        (arrays["row_ptr"], arrays["col"]),
        arrays.get("node"),
        None if weight is None else weight.view(np.int32 if weight.itemsize == 4 else np.int64),
        num_nodes=meta["num_nodes"],
        directed=meta["directed"],
    )
    return None if found is None else f"snapshot {found[1]}: {FAULTS[found[0]]}"


def _names_fault(arrays: Mapping[str, Array], prefix: str) -> str | None:
    """What is wrong with the names of nodes. Those that a part brings come in any order."""
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
    if not _is_text(ptr, text):
        return f"{prefix}name_text is not UTF-8"
    from strobe.ops.index_faults import first_descent

    if not prefix and first_descent(ptr, text, order) >= 0:
        return f"{prefix}name_text does not ascend"
    return None


def _is_text(ptr: Array, text: Array) -> bool:
    """Whether every name is UTF-8: all of it is, and no name begins within a character."""
    begins = text[ptr[:-1][ptr[:-1] < text.size]]
    if bool((begins & 0xC0 == 0x80).any()):
        return False
    from codecs import getincrementaldecoder

    decoder = getincrementaldecoder("utf-8")()
    try:
        for part in _parts(text):
            decoder.decode(part.tobytes())
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
