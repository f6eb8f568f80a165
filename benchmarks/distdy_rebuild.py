"""What does it cost to rebuild a snapshot from differences, beside reading it in full from disk?

A graph with 128 binary features of which 30% change, and as many edges. Differences of the last w snapshots are in
memory; in full, every snapshot is files of its own, read into memory that is new. *Warm*: the files are in the page
cache. *Cold*: they were thrown out of it, which the kernel's count of bytes read confirms. All snapshots of a window
are asked for once, *in order* or *at random*; seconds are those of a snapshot, the median of rounds that alternate.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.distdy_storage import scaled
from benchmarks.record import Record, table
from strobe.graph import DynamicGraph
from strobe.store.delta.strategy import DiskSpill, SnapshotWindow, to_arrays

SIZE, WINDOWS, ROUNDS = "100k-m", (4, 16), 7
KINDS = ("rebuilt", "warm", "cold")


def rebuild(record: Record, quick: bool, scale: float) -> None:
    """Both windows, in both orders."""
    rounds = 2 if quick else ROUNDS
    graph = scaled(SIZE, scale, snapshots=max(WINDOWS))
    samples: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        files = DiskSpill(name)
        for snapshot in graph:
            files.write(snapshot.t, to_arrays(snapshot))
        snapshot_bytes = _bytes(files, graph)
        for size in WINDOWS:
            rng = np.random.default_rng(size)
            for _ in range(rounds):
                order = np.arange(len(graph) - size, len(graph))
                for said in ("in order", "at random"):
                    found = samples.setdefault(f"{size}/{said}", {kind: [] for kind in KINDS})
                    found["rebuilt"].append(_rebuilt(graph, size, order.tolist()) / size)
                    found["warm"].append(_read(files, order.tolist()) / size)
                    if (cold_s := _cold(files, order.tolist())) is not None:
                        found["cold"].append(cold_s / size)
                    order = rng.permutation(order)
    record.samples["rebuild"] = {"snapshot_bytes": snapshot_bytes, "seconds": samples}
    _figures(record, samples)


def _rebuilt(graph: DynamicGraph, size: int, order: Sequence[int]) -> float:
    """Seconds to rebuild snapshots, each once, from a window that has not been read yet."""
    start = len(graph) - size
    window = SnapshotWindow(
        num_nodes=graph.num_nodes, directed=graph.directed, size=size, spill=DiskSpill(), start=start
    )
    for snapshot in graph[start:]:
        window.add(to_arrays(snapshot))
    began = perf_counter()
    for t in order:
        window.nodes(t), window.rows(t), window.x(t)
    return perf_counter() - began


def _read(files: DiskSpill, order: Sequence[int]) -> float:
    """Seconds to read snapshots into memory."""
    began = perf_counter()
    for t in order:
        for array in files.read(t):
            if array is not None:
                np.array(array)
    return perf_counter() - began


def _cold(files: DiskSpill, order: Sequence[int]) -> float | None:
    """The same, with nothing in the page cache; None where the kernel would not let go of it."""
    assert files.path is not None
    paths = [path for path in files.path.iterdir() if int(path.name.partition(".")[0]) in order]
    _throw_out(paths)
    before = _bytes_from_disk()
    seconds = _read(files, order)
    return seconds if _bytes_from_disk() - before > 0.9 * sum(path.stat().st_size for path in paths) else None


def _throw_out(paths: Iterable[Path]) -> None:
    for path in paths:
        number = os.open(path, os.O_RDONLY)
        os.fsync(number)  # pages that are not on disk yet would stay
        os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(number)


def _bytes_from_disk() -> int:
    told = Path("/proc/self/io").read_text()
    return int(next(line for line in told.splitlines() if line.startswith("read_bytes")).split()[1])


def _bytes(files: DiskSpill, graph: DynamicGraph) -> int:
    """Bytes of a snapshot in files, the mean."""
    assert files.path is not None
    return sum(path.stat().st_size for path in files.path.iterdir()) // len(graph)


def _figures(record: Record, samples: dict[str, dict[str, list[float]]]) -> None:
    """``rebuild_vs_read``: in order, windows of 4, beside files in the page cache."""
    rows = []
    for key, found in samples.items():
        seconds = {kind: statistics.median(each) for kind, each in found.items() if each}
        rows.append([*key.split("/"), *(f"{1e3 * seconds[kind]:.1f}" if kind in seconds else "" for kind in KINDS)])
    table(["window", "asked", "rebuilt ms", "read warm ms", "read cold ms"], rows)
    for figure, key, kind in (
        ("rebuild_vs_read", "4/in order", "warm"),
        ("rebuild_vs_read_random", "4/at random", "warm"),
        ("rebuild_vs_read_cold", "4/in order", "cold"),
        ("rebuild_vs_read_cold_random", "4/at random", "cold"),
    ):
        if samples[key][kind]:
            ours, read = (statistics.median(samples[key][each]) for each in ("rebuilt", kind))
            record.figures[figure] = ours / read
        else:
            record.missing[figure] = "the page cache did not let go of the files"
