"""Results that depend on the graph and on options, but not on weights, in the user's cache.

What is cached, and the CPU seconds that it took for sx-mathoverflow (106,000 cells, 320,000 edges), icews18 (300,000
cells, 410,000 edges) and a social network (2,940,000 cells, 20,000,000 edges). A key takes 10 ms once in a process, an
entry of 20 MB 20 ms to read, others 1 ms:

| kind | result | seconds |
|---|---|---|
| fit | ``Problem.state()``: scales, and offsets of links | regression 0.03 to 0.3, links 1.8 to 13 |
| baselines | their metrics of a part | links 0.7 to 131, ranking 18 to 40 |
| partition | owners of all cells | METIS 0.1 to 2.7, chunks 0.8 to 19; hash 0.001 is not saved |
| memory | estimated bytes of a model | 0.2 to 2.1 each |

Normalized matrices and histories of edges are not cached: making them takes about as long as reading them.

Every key has the digest of the graph, the code and versions of what computes, the processor and the number of threads:
results are equal to the last bit, or they are not found.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

import strobe
from strobe.engine.inputs.graph_source import GraphSource
from strobe.engine.machine import processor_name
from strobe.engine.progress import Progress
from strobe.errors import StrobeError
from strobe.graph import DynamicGraph
from strobe.io.cache import NO_CACHE, Arrays, Cache, decode_json, encode_json
from strobe.ops import native
from strobe.placement import Partition
from strobe.plan import Plan
from strobe.tasks import Problem, Task, make_task

Key = Mapping[str, Any] | None
"""What a result depends on besides the graph; None if that cannot be said, and nothing is cached."""

_PARTITION_ARRAYS = (
    "snapshot_owner",
    "node_owner",
    "cell_owner",
    "sequence_owner",
    "cell_chunk",
    "node_loads",
    "node_chunk",
)


@dataclass(frozen=True, eq=False)
class CachedResults:
    """The results of one graph, and of ``problem``, the task bound to it."""

    cache: Cache = NO_CACHE
    source: GraphSource | None = None
    problem: Problem | None = None
    progress: Progress = field(default_factory=Progress)

    def json(self, kind: str, key: Key, compute: Callable[[], Any]) -> Any:
        """A JSON value from the cache, or computed."""
        return self._get(kind, key, compute, encode_json, decode_json)

    def load_json(self, kind: str, key: Key) -> Any:
        """A JSON value from the cache; None if it is absent."""
        return self._load(kind, key, decode_json)

    def save_json(self, kind: str, key: Key, value: Any, seconds: float) -> None:
        """Save a JSON value that took ``seconds`` to compute."""
        self._save(kind, key, encode_json(value), seconds)

    def partition(self, key: Key, graph: DynamicGraph, num_ranks: int, compute: Callable[[], Partition]) -> Partition:
        """The partition of a graph from the cache, or computed."""

        def decode(arrays: Arrays) -> Partition | None:
            found = Partition(num_ranks, replicated=bool(arrays.pop("replicated")[0]), **arrays)
            return found if _fits(found, graph) else None

        return self._get("partition", key, compute, _encode_partition, decode)  # type: ignore[no-any-return]

    def _get(
        self,
        kind: str,
        key: Key,
        compute: Callable[[], Any],
        encode: Callable[[Any], Arrays],
        decode: Callable[[Arrays], Any],
    ) -> Any:
        found = self._load(kind, key, decode)
        if found is None:
            began = perf_counter()
            found = compute()
            self._save(kind, key, encode(found), perf_counter() - began)
        return found

    def _load(self, kind: str, key: Key, decode: Callable[[Arrays], Any]) -> Any:
        full = self._full_key(key)
        arrays = None if full is None else self.cache.load(kind, full)
        try:
            found = None if arrays is None else decode(arrays)
        except (LookupError, TypeError, ValueError):  # forged together with its checksum
            found = None
        if found is not None:
            self.progress.from_cache(kind)
        return found

    def _save(self, kind: str, key: Key, arrays: Arrays, seconds: float) -> None:
        full = self._full_key(key)
        if full is not None and self.source is not None:
            trouble = self.cache.save(kind, full, arrays, subject=self.source.name, seconds=seconds)
            if trouble is not None:
                self.progress.note(trouble)

    def _full_key(self, key: Key) -> dict[str, Any] | None:
        if key is None or self.cache.is_off or self.source is None or self.source.digest is None:
            return None
        return {**key, "graph": self.source.digest, **environment(), "threads": torch.get_num_threads()}


def task_key(task: Task, plan: Plan) -> dict[str, Any] | None:
    """Identify a task as it reads a graph; None for a task or a store of a user's own, and for options that name a
    file, whose content may change."""
    described = task.to_json()
    if any(isinstance(value, str) and Path(value).exists() for value in described.values()):
        return None
    is_own = type(task).__module__.startswith("strobe.") and _is_equal(lambda: make_task(**described), task)
    if not is_own or not is_known_plan(plan):
        return None
    return {"task": described, "store": plan.store.to_json()}


def is_known_plan(plan: Plan) -> bool:
    """Whether all strategies of a plan are Strobe's own, so that their options say all."""
    return _is_equal(lambda: Plan.from_json(plan.to_json()), plan)


def _is_equal(make: Callable[[], Any], value: Any) -> bool:
    try:
        return bool(make() == value)
    except (StrobeError, LookupError, TypeError, ValueError):
        return False


@cache
def environment() -> dict[str, Any]:
    """What besides its inputs the bits of a result depend on: code, versions, processor, and cores for BLAS."""
    kernels = native.library()
    threads = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    return {
        "code": _code_digest(),
        "versions": [np.__version__, str(torch.__version__), *map(_version, ("numba", "pymetis", "scipy"))],
        "processor": processor_name(),
        "cores": len(os.sched_getaffinity(0)),
        "kernels": None if kernels is None else Path(kernels._name).name,
        "environment": threads,
    }


def _code_digest() -> str:
    """Identify Strobe's code by the sizes and times of its files: 3 ms."""
    root, known = os.path.dirname(strobe.__file__), []  # noqa: PTH120
    for folder, _, names in os.walk(root):
        for path in [os.path.join(folder, name) for name in names if name.endswith((".py", ".so"))]:  # noqa: PTH118
            status = os.stat(path)  # noqa: PTH116
            known.append((os.path.relpath(path, root), status.st_size, status.st_mtime_ns))
    return sha256(repr(sorted(known)).encode()).hexdigest()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _encode_partition(partition: Partition) -> Arrays:
    named = {name: getattr(partition, name) for name in _PARTITION_ARRAYS}
    present = {name: array for name, array in named.items() if array is not None}
    return {"replicated": np.array([partition.replicated]), **present}


def _fits(partition: Partition, graph: DynamicGraph) -> bool:
    """Whether a partition has valid owners of all cells of a graph: kernels index arrays by them."""
    nodes, cells, ranks = graph.num_nodes, graph.num_cells, partition.num_ranks
    sizes = {"snapshot_owner": len(graph), "node_owner": nodes, "cell_owner": cells, "sequence_owner": nodes}
    sizes |= {"cell_chunk": cells, "node_loads": nodes, "node_chunk": nodes}
    for name, size in sizes.items():
        array = getattr(partition, name)
        if array is None:
            continue
        if array.shape != (size,) or (array.dtype.kind == "f") != (name == "node_loads"):
            return False
        limit = size if name.endswith("_chunk") else ranks
        if name != "node_loads" and size and not (array.min() >= 0 and array.max() < limit):
            return False
    highest = partition.snapshot_owner.max(initial=0) + partition.node_owner.max(initial=0)
    return bool(highest < ranks)
