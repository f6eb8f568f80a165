"""Opening of saved and growing graphs."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from strobe.errors import FormatError
from strobe.graph.disk.directory import assemble_graph, open_arrays
from strobe.graph.disk.growing import GrowingGraph
from strobe.graph.disk.metadata import check_id_space, is_growing, metadata_digest, read_metadata
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.progress import OnProgress

_ATTEMPTS = 10


def open_graph(
    path: str | PathLike[str], *, verify: bool = False, on_progress: OnProgress | None = None
) -> DynamicGraph:
    """Open a saved graph: arrays are memory-mapped, so opening takes no memory and, after the first time, no time.

    The first time, every array is compared with its checksum and every index is checked, so later reads stay inside the
    arrays. The user's cache remembers the result by size, times and inode of every file until a file changes. Files
    must not be written to while they are open. A graph that is replaced meanwhile is opened as it was before or after,
    never as a mixture. A growing graph is opened with its current snapshots, each checked when it is first read.

    Args:
        path: directory of the graph.
        verify: check everything now, even if it was checked before.
        on_progress: called with (MiB checked, total MiB) while a large graph is checked.

    Raises:
        FormatError: there is no graph, it is damaged, or Strobe did not write it.
    """
    folder = Path(path)
    graph = _open_consistent(folder, verify, on_progress)
    object.__setattr__(graph, "path", folder.resolve())
    return graph


def _open_consistent(folder: Path, verify: bool, on_progress: OnProgress | None) -> DynamicGraph:
    if is_growing(folder):
        return GrowingGraph(folder).open(verify=verify, on_progress=on_progress)
    for _ in range(_ATTEMPTS):
        before = _identity(folder)
        try:
            graph = _open(folder, verify, on_progress)
        except (FormatError, FileNotFoundError):
            if _identity(folder) == before:
                raise
        else:
            if _identity(folder) == before:
                return graph
    raise FormatError(f"{folder} is replaced again and again while it is being opened")


def _open(folder: Path, verify: bool, on_progress: OnProgress | None) -> DynamicGraph:
    meta = read_metadata(folder)
    arrays = open_arrays(folder, meta, verify=verify, on_progress=on_progress)
    check_id_space(folder, meta["num_nodes"], arrays["row_ptr"].size)  # stored cells, however many snapshots share them
    graph = assemble_graph(folder, meta, arrays)
    object.__setattr__(graph, "digest", metadata_digest(meta))
    return graph


def _identity(folder: Path) -> tuple[int, int] | None:
    """Return an identity that changes when another graph replaces this one; None if there is none."""
    try:
        status = folder.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns
