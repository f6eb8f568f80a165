"""How many nodes a graph from a file may claim to have: tables over all ids must fit into memory."""

from __future__ import annotations

import os
import resource

from strobe.errors import FormatError

_ALWAYS = 10**8
"""Nodes that every machine has room for."""
_UNUSED = 16  # ids per cell, from which on most of them are never used
_BYTES = 32  # of the tables that training and statistics keep for each id


def refuse_vast(where: object, num_nodes: int, num_cells: int, memory_bytes: int | None = None) -> None:
    """Raises FormatError where nearly all of a graph's ids are unused and tables over them would fill the memory.

    A file of some hundred bytes can claim three thousand million nodes; a graph that has the cells to show for its
    nodes takes more room on disk than their tables do in memory.
    """
    if num_nodes <= max(_ALWAYS, _UNUSED * num_cells):
        return
    room = _memory_bytes() if memory_bytes is None else memory_bytes
    if num_nodes * _BYTES > room:
        raise FormatError(
            f"{where} has {num_nodes:,} nodes but only {num_cells:,} cells: tables over all nodes would take "
            f"{num_nodes * _BYTES >> 30:,} GiB, and {room >> 30:,} GiB is what this process may have. "
            "Number the nodes that are used from 0 on, and build the graph again."
        )


def _memory_bytes() -> int:
    """What this machine has, or less where the process is limited."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return physical if limit == resource.RLIM_INFINITY else min(limit, physical)
