"""One sentence under each plot of a graph: what it means for training."""

from __future__ import annotations

import numpy as np

from strobe.graph.stats import GraphStats
from strobe.numbers import count, file_size, percent, times


def size_caption(stats: GraphStats) -> str:
    """Does the graph grow?"""
    edges = np.asarray(stats.series("edges"), np.float64)
    tenth = max(1, edges.size // 10)
    first, last = float(edges[:tenth].mean()), float(edges[-tenth:].mean())
    held = f"A snapshot holds {count(edges.mean())} edges on average, from {count(edges.min())} to {count(edges.max())}"
    if stats.num_snapshots < 2 or first == 0:
        return f"{held}."
    if last > 1.25 * first:
        return (
            f"{held}, and the graph grows: the last snapshots have {times(last / first)} the edges of the first, "
            "so a split by time tests the model on a larger graph than it was trained on."
        )
    if last < first / 1.25:
        return (
            f"{held}, and the graph shrinks: the last snapshots have {percent(last / first)} of the edges of the "
            "first, so a split by time leaves fewer examples for the test."
        )
    return f"{held}; early and late snapshots are about as large, so a split by time compares like with like."


def churn_caption(stats: GraphStats) -> str:
    """Is a delta store worth it?"""
    shared = stats.shared_pairs
    if shared is None:
        return "There are no two neighbouring snapshots with edges to compare."
    said = f"Neighbouring snapshots share {percent(shared)} of their edges"
    if stats.delta_share < 0.9:
        return f"{said}: a delta store would keep {percent(stats.delta_share)} of the bytes."
    return f"{said}: a delta store would save nothing worth having."


def presence_caption(stats: GraphStats) -> str:
    """Does the set of nodes change?"""
    later = stats.snapshots[1:]
    cells = sum(s.nodes for s in later)
    came = sum(s.arrivals for s in later)
    back, left = sum(s.returns for s in later), sum(s.departures for s in later)
    if not cells or not came + back + left:
        return "The same nodes are present in every snapshot: no state has to be made or parked."
    said = f"{percent(came / cells)} of a snapshot's nodes are new and {percent(back / cells)} come back after a gap"
    if came + back > 0.2 * cells:
        return f"{said}: many cells start without a recent state, so features must carry a newcomer."
    return f"{said}: most cells continue a sequence, so a time stage has a past to read."


def degree_caption(stats: GraphStats) -> str:
    """Are there hubs?"""
    law = stats.degrees
    if law.max == 0:
        return "No cell has an edge: a structure stage has nothing to read."
    said = f"The busiest cell reads {count(law.max)} edges, the median cell {count(law.median)} (Gini {law.gini:.2f})"
    if law.max >= 50 * max(law.median, 1):
        return f"{said}: a few hubs carry much of the work, so equal numbers of nodes are far from equal work."
    return f"{said}: no cell dominates, so equal numbers of nodes are close to equal work."


def sequence_caption(stats: GraphStats) -> str:
    """What would padding cost?"""
    lives = stats.sequences
    if not stats.num_cells:
        return "No node is ever present: there are no sequences."
    ever = stats.num_nodes - lives.num_never_present
    padded = ever * stats.num_snapshots / stats.num_cells
    if padded < 1.05:
        return f"Nearly every node is present in all {count(stats.num_snapshots)} snapshots: sequences need no padding."
    gaps = f", and {percent(lives.num_nodes_with_gaps / ever)} of them leave and return" if lives.num_gaps else ""
    return (
        f"A node is present in {lives.mean:,.1f} of {count(stats.num_snapshots)} snapshots on average{gaps}: "
        f"padding all sequences to full length would compute {times(padded)} the cells."
    )


def load_caption(stats: GraphStats) -> str:
    """Can time be cut into equal numbers of snapshots?"""
    peak = stats.load_spread.max_over_mean
    if peak is None:
        return "There is no load to divide."
    said = f"The heaviest snapshot is {times(peak)} the mean load (cells + arcs)"
    if stats.num_snapshots < 8:
        return f"{said}; with {stats.num_snapshots} snapshots, time alone cannot be divided among many ranks."
    blocks = [float(part.sum()) for part in np.array_split(np.asarray(stats.series("load"), np.float64), 4)]
    uneven = max(blocks) * 4 / sum(blocks)
    if uneven < 1.1:
        return f"{said}; four parts of equally many snapshots have nearly equal work."
    return f"{said}; of four parts with equally many snapshots the heaviest has {times(uneven)} its share of the work."


def bytes_caption(stats: GraphStats) -> str:
    """What would keeping only the changes save?"""
    full, delta = file_size(stats.full_bytes), file_size(stats.delta_bytes)
    said = f"All snapshots take {full} in full and would take {delta} as deltas"
    if stats.delta_share < 0.9:
        return f"{said}: {percent(stats.delta_share)} of the bytes."
    if stats.delta_share <= 1:
        return f"{said}: hardly less."
    return f"{said}: so much changes that deltas are the larger."
