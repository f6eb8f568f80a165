"""How long relayed time stages take: which parts of sequences wait for which, and who has them."""

from __future__ import annotations

import numpy as np

from strobe.engine.flows import levels, visits
from strobe.exchange.legs import NOBODY
from strobe.ops.csr import FloatArray, IntArray
from strobe.view import Owners


def cells_in_waves(owners: Owners) -> tuple[IntArray, bool]:
    """Cells of every wave and rank of a window, [V, W]: wave 0 waits for nobody, wave 1 for a state of wave 0, and so
    on; and whether sequences visit ranks in one order, so that all cells of a rank are of one wave."""
    width = owners.placed.num_ranks
    wave = np.zeros(owners.graph.num_nodes, np.int64)
    told = np.zeros((width, width), bool)
    found = np.zeros(width, np.int64)
    for nodes, owner, before in visits(owners):
        moved = (before != NOBODY) & (before != owner)
        told[before[moved], owner[moved]] = True
        wave[nodes] += moved
        more = np.bincount(wave[nodes] * width + owner, minlength=len(found))
        more[: len(found)] += found
        found = more
    level = levels(told)
    cells = np.pad(found, (0, -len(found) % width)).reshape(-1, width)
    if level is None:
        return cells, False
    in_turn = np.zeros((int(level.max()) + 1, width), np.int64)
    in_turn[level, np.arange(width)] = cells.sum(axis=0)
    return in_turn, True


def relayed_seconds(in_waves: FloatArray, groups: int) -> float:
    """Seconds of a stage whose nodes follow each other in groups, from those of every wave and rank, [V, W].

    Group g runs wave w in slot g + w, forward and, the other way round, backward. A slot lasts as long as its slowest
    rank; where V ranks of equal load come one after the other that is (G + V - 1) / G of what one of them computes.
    """
    waves, ranks = in_waves.shape
    slots = np.zeros((groups + waves - 1, ranks))
    for wave in range(waves):
        slots[wave : wave + groups] += in_waves[wave] / groups
    return float(slots.max(axis=1, initial=0.0).sum())
