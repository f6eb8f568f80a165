"""Parts of a graph with few links between them, by METIS."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from strobe.errors import MissingPackageError
from strobe.ops.csr import IntArray

_LARGEST_SUM = 1 << 30
"""METIS adds up in 32 bits."""


def partition(links: sp.csr_array, loads: IntArray, num_parts: int, seed: int = 0) -> IntArray:
    """The part of every row, [n], of about equal load, for symmetric links without self-loops. Parts may stay empty.

    By recursive bisection: on graphs with hubs it cuts fewer links than METIS's other way, and in less time.
    """
    pymetis = _pymetis()
    if loads.size <= num_parts or num_parts == 1:
        return np.arange(loads.size) % num_parts
    found = pymetis.part_graph(
        num_parts,
        pymetis.CSRAdjacency(links.indptr, links.indices),
        vweights=_small(_shares_at_most(loads, num_parts)),
        eweights=_small(links.data),
        recursive=True,
        options=pymetis.Options(seed=seed % _LARGEST_SUM),
    )
    return np.asarray(found.vertex_part, np.int64)


def bisections(links: sp.csr_array, loads: IntArray, share: float, seed: int = 0) -> list[IntArray]:
    """Ways to cut rows in two, [n] each, such that part 0 has about this share of the load, 0 < share < 1.

    One by each of METIS's ways. With hubs one may cut twice as many links as the other, and nobody knows which.
    """
    pymetis = _pymetis()
    largest = max(int(loads.sum() * max(share, 1 - share)), 1)
    found: list[IntArray] = []
    for recursive, shares, zero in ((True, [share, 1 - share], 0), (False, [1 - share, share], 1)):
        cut = pymetis.part_graph(
            2,
            pymetis.CSRAdjacency(links.indptr, links.indices),
            vweights=_small(np.minimum(loads, largest)),
            eweights=_small(links.data),
            tpwgts=shares,
            recursive=recursive,
            options=pymetis.Options(seed=seed % _LARGEST_SUM),
        )
        found.append(np.asarray(cut.vertex_part, np.int64) ^ zero)
    return found


def _pymetis() -> Any:
    try:
        import pymetis
    except ImportError as error:
        raise MissingPackageError("pymetis", "placing nodes with METIS") from error
    return pymetis


def _shares_at_most(loads: IntArray, num_parts: int) -> IntArray:
    """The same loads, but none larger than an even share of them all: a node that fills a part gets one to itself,
    and the other parts share the rest evenly. (METIS stumbles over halves without nodes, and says so on the screen.)"""
    heaviest = np.sort(loads)[::-1]
    alone = np.arange(num_parts)  # so many of the heaviest have a part to themselves
    rest = heaviest.sum() - np.concatenate(([0], np.cumsum(heaviest)))[:num_parts]
    share = rest // (num_parts - alone)
    enough = int(np.argmax(heaviest[:num_parts] <= share))
    capped: IntArray = np.minimum(loads, max(int(share[enough]), 1))
    return capped


def _small(weights: IntArray) -> IntArray:
    """Weights in proportion, at least 1 each, whose sum METIS can hold."""
    excess = int(weights.sum(dtype=np.int64)) // _LARGEST_SUM
    small: IntArray = np.maximum(weights >> excess.bit_length(), 1).astype(np.int32)
    return small
